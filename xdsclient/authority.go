package xdsclient

import (
	"slices"
	"time"

	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
	"github.com/dynxds/dynxds/xdsclient/internal/ads/wire"
)

// authority is one xDS authority: a cache for each of its servers,
// and the targets that watch its resources. It exists while a cache has a resource.
// Guarded by XDSClient.mu.
//
// # Fallback between servers (gRFC A71)
//
// A target follows one server with all its watches. They are
// subscribed to at that server and at the servers above it in the list, which were
// unreachable and are still tried. Each target moves by itself, so that a target that needs
// a new resource does not take along targets that have all they need. Targets that follow the same
// server share its stream and its cache.
//
//	level   server      target A (has all)      target B (needs something new)
//	  0     primary     uses its cache         stands by at its cache
//	  1     fallback    -                      uses its cache
//
// A target moves down one level when its server becomes unreachable and something that it
// watches is not cached; if the next server is known to be unreachable, it moves on at once.
// While all is cached it stays, and nothing is reported to its watchers. Unreachable is a
// connectivity error as gRFC A57 defines it, and lasts until the next stream is open: whether
// that stream brings an answer is not known before it ends. Once the server of the last
// level and all above it are unreachable, that is reported to the watchers of the last level.
//
// A target moves up to any level above with the first answer of that server that is of use
// to it: a valid resource that it watches, or that a resource does not exist, or not for this
// client. Other answers are held in that server's cache until then. If the server that the target
// follows is unreachable itself, any answer from above is enough.
//
// This does not flap: the way down needs a failed attempt and something that is missing, the
// way up needs an answer, and backoff bounds the attempts to get one.
//
// For each resource that a server has answered for, the target that moves to its cache gets that
// answer. Other resources the cache inherits from the cache that the target used before, until the
// server answers. Watchers are called for differences. On a new stream
// the resources that a target stands by for are requested without versions: the server would
// not repeat resources that the target's cache has replaced since.
//
// Each step costs time in proportion to the watches of the target, and backoff bounds the number
// of steps by bounding the failed attempts that lead to them.
type authority struct {
	client *XDSClient
	key    authorityKey
	// levels are the caches of the authority's servers, the preferred one first.
	levels []*level
	// variants says that one of the servers can be asked for variants of resources
	// (xRFC TP2). If none can, constraints choose nothing, and all watches of a name
	// are of one resource.
	variants bool
	// byTarget has the targets that watch something.
	byTarget map[string]*targetWatches
	// wait ends when resources from disk are to be used, and waited says that it has ended. fromDisk says
	// that a resource from disk is in use, and that no server has answered. See stored.go.
	wait             *time.Timer
	waited, fromDisk bool
	// changed is when a server last sent a version of a resource. Only the diskWriter uses it.
	changed time.Time
}

func newAuthority(c *XDSClient, key authorityKey, servers []*bootstrap.Server) *authority {
	a := &authority{
		client:   c,
		key:      key,
		variants: slices.ContainsFunc(servers, knowsVariants),
		byTarget: make(map[string]*targetWatches),
	}
	for _, s := range servers {
		a.addLevel(s)
	}
	return a
}

func (a *authority) addLevel(server *bootstrap.Server) {
	a.levels = append(a.levels, &level{authority: a, server: server, index: len(a.levels), resources: make(map[resourceKey]*resource)})
}

// watchesOf returns the watches of a target. A new one follows the preferred server.
func (a *authority) watchesOf(target string) *targetWatches {
	p := a.byTarget[target]
	if p == nil {
		p = &targetWatches{authority: a, target: target, level: a.levels[0]}
		a.byTarget[target] = p
	}
	return p
}

// watch adds a watch of a target to the resource that a locator names.
func (a *authority) watch(t *ResourceType, l wire.Locator, w *watch, target string) {
	if !a.variants {
		l.Constraints = dynparam.Constraints{}
	}
	a.watchesOf(target).watch(resourceKey{t, l.Name, l.Constraints.Key()}, l.Constraints, w)
}

// abandon ends all watches, before the channels close.
func (a *authority) abandon() {
	for _, p := range a.byTarget {
		for _, w := range p.watches {
			w.abandon()
		}
	}
	for _, l := range a.levels {
		for _, r := range l.resources {
			r.watches, r.standby = nil, 0
		}
	}
}

// forgetIfEmpty removes the authority from the client if its caches are empty.
func (a *authority) forgetIfEmpty() {
	for _, l := range a.levels {
		if len(l.resources) > 0 {
			return
		}
	}
	a.endWait()
	delete(a.client.authorities, a.key)
}

// serversFor returns the servers of an authority, each once (gRFC A47).
func serversFor(cfg *bootstrap.Config, key authorityKey) ([]*bootstrap.Server, error) {
	servers := cfg.Servers
	if key.newStyle {
		a, err := cfg.Authority(key.name)
		if err != nil {
			return nil, err
		}
		servers = a.Servers
	}
	unique := make([]*bootstrap.Server, 0, len(servers))
	for _, s := range servers {
		if !slices.ContainsFunc(unique, func(u *bootstrap.Server) bool { return u.Key() == s.Key() }) {
			unique = append(unique, s)
		}
	}
	return unique, nil
}

// String names the authority in the log.
func (a *authority) String() string {
	if !a.key.newStyle {
		return "old-style names"
	}
	return "authority " + faults.Quote(a.key.name)
}
