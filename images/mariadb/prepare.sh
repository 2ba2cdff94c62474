# Debian's mariadb-server would create the user mysql. mariadb-server-core, which is sufficient, does not.
groupadd --system --gid 402 mysql
useradd --system --uid 402 --gid mysql --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin mysql
