package xdsclient

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// authorityKey identifies an authority. Old-style names belong to the zero key.
// A new-style name (xRFC TP1) may have an empty authority, which is another one.
type authorityKey struct {
	newStyle bool
	name     string
}

// authority is the cache of one authority and its way to the servers. It exists
// while it has a resource. Guarded by XDSClient.mu.
type authority struct {
	client *XDSClient
	key    authorityKey
	// servers are the authority's servers, the preferred one first.
	servers []*bootstrap.Server
	// channel leads to the server in use. It is nil before the first watch.
	channel *serverChannel
	// resources are those that are watched, and those of which the server has
	// not been told that they are not.
	resources map[resourceKey]*resource
}

// newStylePrefix starts the resource names of xRFC TP1.
const newStylePrefix = "xdstp:"

// authorityOf says which authority a resource name belongs to.
func authorityOf(name string) (authorityKey, error) {
	if !strings.HasPrefix(name, newStylePrefix) {
		return authorityKey{}, nil
	}
	key := authorityKey{newStyle: true}
	rest, ok := strings.CutPrefix(name, newStylePrefix+"//")
	if !ok {
		return key, nil
	}
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		rest = rest[:end]
	}
	var err error
	if key.name, err = url.PathUnescape(rest); err != nil {
		return authorityKey{}, fmt.Errorf("the authority of the name: %w", err)
	}
	return key, nil
}

// checkName finds names that a server could only misunderstand.
func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("a resource needs a name")
	case name == "*":
		return errors.New(`"*" asks for every resource and names none`)
	case !utf8.ValidString(name):
		return errors.New("the name is not valid UTF-8")
	default:
		return nil
	}
}

// serversFor returns the servers of an authority (gRFC A47).
func serversFor(cfg *bootstrap.Config, key authorityKey) ([]*bootstrap.Server, error) {
	if !key.newStyle {
		return cfg.Servers, nil
	}
	if a, ok := cfg.Authorities[key.name]; ok {
		return a.Servers, nil
	}
	if key.name == "" {
		return nil, fmt.Errorf(`xDS bootstrap %s: the name has no authority; authorities has no entry "" for such names`, cfg.Source)
	}
	_, err := cfg.ServersFor(key.name)
	return nil, err
}

// watch adds a watcher to the resource of the key.
func (a *authority) watch(key resourceKey, w *watch) {
	r, ok := a.resources[key]
	if !ok {
		r = &resource{key: key, authority: a}
		a.resources[key] = r
	}
	if a.channel == nil {
		a.channel = a.client.channelTo(a.servers[0])
		a.channel.authorities[a] = struct{}{}
	}
	if len(r.watches) == 0 {
		a.channel.subscribe(r)
	}
	r.join(w)
}

// unwatch removes a watcher.
func (a *authority) unwatch(r *resource, w *watch) {
	if r.leave(w); len(r.watches) == 0 {
		a.channel.unsubscribe(r)
	}
}

// forget drops a resource, and with the last one the authority.
func (a *authority) forget(r *resource) {
	if delete(a.resources, r.key); len(a.resources) == 0 {
		delete(a.channel.authorities, a)
		delete(a.client.authorities, a.key)
	}
}

// serverDown says that the server in use cannot be reached.
func (a *authority) serverDown(ch *serverChannel) {
	for _, r := range a.resources {
		r.linkDown(ch.unreachable(r))
	}
}

// serverUp says that the server in use answers again.
func (a *authority) serverUp() {
	for _, r := range a.resources {
		r.linkUp()
	}
}
