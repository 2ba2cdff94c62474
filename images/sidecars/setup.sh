groupadd --gid 65532 nonroot
useradd --uid 65532 --gid nonroot --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin nonroot
