# Replaces the tables of the accounting database with those of a backup. The password is in the file PASSWORD_FILE.
set -eu
MYSQL_PWD=$(cat "$PASSWORD_FILE")
export MYSQL_PWD
if [ "$BACKUP" = latest ]; then
  for file in /backup/*/backup.json; do BACKUP=$(basename "$(dirname "$file")"); done
fi
gunzip --test "/backup/$BACKUP/database.sql.gz"
gunzip --stdout "/backup/$BACKUP/database.sql.gz" |
  mariadb --host="$DATABASE_HOST" --port="$DATABASE_PORT" --user="$DATABASE_USER" "$DATABASE_NAME"
echo "the database is that of the backup $BACKUP"
