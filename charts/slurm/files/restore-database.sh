# Replaces the tables of the accounting database with those of a backup. The path of its dump, which the container `check`
# has chosen and checked, is in the file CHOSEN_FILE. The password is in the file PASSWORD_FILE. In the sandbox, a line of a
# dump is no command of the shell.
set -eu
MYSQL_PWD=$(cat "$PASSWORD_FILE")
export MYSQL_PWD
DUMP=$(cat "$CHOSEN_FILE")
gunzip --test "$DUMP"
gunzip --stdout "$DUMP" |
  mariadb --sandbox --host="$DATABASE_HOST" --port="$DATABASE_PORT" --user="$DATABASE_USER" \
  ${TLS_CA_FILE:+"--ssl-ca=$TLS_CA_FILE"} ${TLS_CERT_FILE:+"--ssl-cert=$TLS_CERT_FILE"} \
  ${TLS_KEY_FILE:+"--ssl-key=$TLS_KEY_FILE"} "$DATABASE_NAME"
echo "the database is that of $DUMP"
