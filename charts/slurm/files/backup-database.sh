# The dump of the accounting database for the backup that the pod POD creates. The password is in the file PASSWORD_FILE.
# With a TLS_CA_FILE, the client refuses a database without TLS, or with a certificate of another name or authority.
set -eu
MYSQL_PWD=$(cat "$PASSWORD_FILE")
export MYSQL_PWD
# One transaction: slurmdbd writes on meanwhile.
mariadb-dump --single-transaction --quick --host="$DATABASE_HOST" --port="$DATABASE_PORT" --user="$DATABASE_USER" \
  ${TLS_CA_FILE:+"--ssl-ca=$TLS_CA_FILE"} ${TLS_CERT_FILE:+"--ssl-cert=$TLS_CERT_FILE"} \
  ${TLS_KEY_FILE:+"--ssl-key=$TLS_KEY_FILE"} "$DATABASE_NAME" \
  > "/backup/.unfinished-$POD/database.sql"
