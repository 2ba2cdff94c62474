# skopeo's package depends on plugins for the networks of other container tools, which nothing here uses.
rm -rf /usr/lib/cni
