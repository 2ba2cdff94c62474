# The dump of the accounting database for the backup that the pod POD creates. The password is in the file PASSWORD_FILE.
set -eu
MYSQL_PWD=$(cat "$PASSWORD_FILE")
export MYSQL_PWD
# One transaction: slurmdbd writes on meanwhile.
mariadb-dump --single-transaction --quick --host="$DATABASE_HOST" --port="$DATABASE_PORT" --user="$DATABASE_USER" \
  "$DATABASE_NAME" > "/backup/.unfinished-$POD/database.sql"
