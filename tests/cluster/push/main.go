// Pushes images to a registry, with the credentials that `docker login` or `podman login` has stored.
//
//	push check REPOSITORY...            ends with an error unless the credentials allow a push; pushes nothing
//	push layout FOLDER PREFIX           pushes the images of an OCI layout as PREFIX/NAME:TAG
//	push readable anonymous|login IMAGE...   ends with an error unless the images can be pulled
//	push credentials HOST               prints what is stored for the registry
//
// Each line of the output is a JSON object. The one of an error has the keys `error`, a kind that the caller knows, and
// `message`. SSL_CERT_FILE, HTTPS_PROXY and NO_PROXY have their usual meanings.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

const imageName = "org.opencontainers.image.ref.name"

// How long a registry may take to accept a connection, and to answer whether it has images.
const connecting, answering = 10 * time.Second, 20 * time.Second

func main() {
	remote.DefaultTransport.(*http.Transport).DialContext = (&net.Dialer{Timeout: connecting}).DialContext
	if err := run(os.Args[1:]); err != nil {
		say(map[string]any{"error": kind(err), "message": err.Error()})
		os.Exit(1)
	}
}

func run(words []string) error {
	switch {
	case len(words) > 1 && words[0] == "check":
		return each(words[1:], func(text string) error {
			repository, err := name.NewRepository(text)
			if err != nil {
				return err
			}
			return remote.CheckPushPermission(repository.Tag("latest"), authn.DefaultKeychain, remote.DefaultTransport)
		})
	case len(words) == 3 && words[0] == "layout":
		return push(words[1], words[2])
	case len(words) > 2 && words[0] == "readable":
		var keychain authn.Keychain = authn.DefaultKeychain
		if words[1] == "anonymous" {
			keychain = authn.NewMultiKeychain()
		}
		limited, cancel := context.WithTimeout(context.Background(), answering)
		defer cancel()
		return each(words[2:], func(text string) error {
			reference, err := name.ParseReference(text)
			if err == nil {
				_, err = remote.Head(reference, remote.WithAuthFromKeychain(keychain), remote.WithContext(limited))
			}
			return err
		})
	case len(words) == 2 && words[0] == "credentials":
		return credentials(words[1])
	}
	return errors.New("usage: push check|layout|readable|credentials ARGUMENT...")
}

func each(texts []string, do func(string) error) error {
	for _, text := range texts {
		if err := do(text); err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
	}
	return nil
}

// from has the images' layers where an earlier image has brought them, so that the registry need not get them again.
type from struct {
	v1.Image
	known map[v1.Hash]name.Reference
}

func (f from) Layers() ([]v1.Layer, error) {
	layers, err := f.Image.Layers()
	if err != nil {
		return nil, err
	}
	for number, layer := range layers {
		digest, err := layer.Digest()
		if err != nil {
			return nil, err
		}
		if reference, found := f.known[digest]; found {
			layers[number] = &remote.MountableLayer{Layer: layer, Reference: reference}
		}
	}
	return layers, nil
}

func push(folder, prefix string) error {
	index, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		return err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	known := map[v1.Hash]name.Reference{}
	for number, descriptor := range manifest.Manifests {
		own := path.Base(descriptor.Annotations[imageName])
		tag, err := name.NewTag(prefix + "/" + own)
		if err != nil {
			return err
		}
		image, err := index.Image(descriptor.Digest)
		if err != nil {
			return err
		}
		if err := write(tag, from{image, known}, fmt.Sprintf("%s (%d of %d)", own, number+1, len(manifest.Manifests))); err != nil {
			return fmt.Errorf("%s: %w", tag, err)
		}
		layers, err := image.Layers()
		if err != nil {
			return err
		}
		for _, layer := range layers {
			if digest, err := layer.Digest(); err == nil && known[digest] == nil {
				known[digest] = tag
			}
		}
		say(map[string]any{"image": own, "digest": descriptor.Digest.String()})
	}
	return nil
}

func write(tag name.Tag, image v1.Image, title string) error {
	updates := make(chan v1.Update, 100)
	failed := make(chan error, 1)
	go func() {
		failed <- remote.Write(tag, image, remote.WithAuthFromKeychain(authn.DefaultKeychain), remote.WithProgress(updates))
	}()
	tenth := int64(-1)
	for update := range updates {
		if update.Total > 0 && update.Complete*10/update.Total != tenth {
			tenth = update.Complete * 10 / update.Total
			say(map[string]any{"at": title, "complete": update.Complete, "total": update.Total})
		}
	}
	return <-failed
}

func credentials(host string) error {
	registry, err := name.NewRegistry(host)
	if err != nil {
		return err
	}
	found, err := authn.Resolve(context.Background(), authn.DefaultKeychain, registry)
	if err != nil {
		return err
	}
	stored, err := authn.Authorization(context.Background(), found)
	if err != nil {
		return err
	}
	say(map[string]any{"username": stored.Username, "password": stored.Password, "token": stored.IdentityToken + stored.RegistryToken})
	return nil
}

// kind is how the caller recognizes an error.
func kind(err error) string {
	var unknown x509.UnknownAuthorityError
	var wrong *tls.CertificateVerificationError
	var answer *transport.Error
	var network net.Error
	var record tls.RecordHeaderError
	var asked *url.Error
	var unnamed *name.ErrBadName
	switch {
	case errors.As(err, &unnamed):
		return "name"
	case strings.Contains(err.Error(), "proxyconnect"):
		return "proxy"
	case errors.As(err, &unknown):
		return "authority"
	case errors.As(err, &wrong):
		return "certificate"
	case strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"), errors.As(err, &record):
		return "plain"
	case errors.As(err, &answer):
		switch {
		case answer.StatusCode == http.StatusUnauthorized:
			return "unauthorized"
		case answer.StatusCode == http.StatusForbidden:
			return "forbidden"
		case answer.StatusCode == http.StatusNotFound:
			return "missing"
		case answer.StatusCode == http.StatusInsufficientStorage:
			return "full"
		case answer.StatusCode >= http.StatusInternalServerError:
			return "server"
		}
	case errors.As(err, &asked) && proxied(asked.URL):
		return "proxy"
	case errors.As(err, &network):
		return "unreachable"
	}
	return "other"
}

// proxied is whether requests to an address go through a proxy. What a proxy answers to CONNECT is an error without a type.
func proxied(text string) bool {
	address, err := url.Parse(text)
	if err != nil {
		return false
	}
	proxy, err := http.ProxyFromEnvironment(&http.Request{URL: address})
	return err != nil || proxy != nil
}

func say(line map[string]any) {
	text, _ := json.Marshal(line)
	fmt.Println(string(text))
}
