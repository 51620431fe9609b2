// Package httpfilter is the registry of HTTP filters (gRFC A39): the types of
// filter this process knows, by the protobuf type of their configuration.
//
// It parses configurations; it does not run RPCs and knows nothing of routes.
// xdsresource asks it while it validates a Listener, configselector while it
// builds the chain of a route.
package httpfilter

import (
	"fmt"
	"slices"
	"sync"

	"google.golang.org/protobuf/types/known/anypb"
)

// Config is a parsed, validated configuration of a filter, in a form that
// only the filter's own package understands. It is immutable.
type Config any

// Filter is a type of HTTP filter. Implementations are stateless and safe for
// concurrent use.
type Filter interface {
	// TypeURLs returns the type URLs of the configurations this filter is
	// registered under, top-level and override together.
	TypeURLs() []string
	// ParseConfig validates a top-level configuration
	// (HttpFilter.typed_config). An error NACKs the Listener.
	ParseConfig(config *anypb.Any) (Config, error)
	// IsTerminal reports whether the filter has to be the last of its chain,
	// and may be only that.
	IsTerminal() bool
}

// Instance is one entry of HttpConnectionManager.http_filters.
type Instance struct {
	// Name is the instance name, unique in the chain.
	Name   string
	Filter Filter
	Config Config
}

var registry = struct {
	sync.RWMutex
	byType map[string]Filter
}{byType: make(map[string]Filter)}

// Register makes a filter known under all its type URLs. It is meant for init
// functions and panics when a type URL is taken, since two filters that claim
// one configuration cannot both be right.
func Register(f Filter) {
	registry.Lock()
	defer registry.Unlock()
	for _, url := range f.TypeURLs() {
		if old, ok := registry.byType[url]; ok {
			panic(fmt.Sprintf("httpfilter: %T and %T both register for %q", old, f, url))
		}
		registry.byType[url] = f
	}
}

// Get returns the filter registered for the type URL, or nil.
func Get(typeURL string) Filter {
	registry.RLock()
	defer registry.RUnlock()
	return registry.byType[typeURL]
}

// TypeURLs returns all registered type URLs in order.
func TypeURLs() []string {
	registry.RLock()
	defer registry.RUnlock()
	urls := make([]string, 0, len(registry.byType))
	for url := range registry.byType {
		urls = append(urls, url)
	}
	slices.Sort(urls)
	return urls
}
