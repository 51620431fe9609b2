package httpfilter

import (
	"fmt"
	"sync"
)

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
