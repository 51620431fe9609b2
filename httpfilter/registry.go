package httpfilter

import (
	"fmt"
	"sync"
)

var registry = struct {
	sync.RWMutex
	byType, byMetadataType map[string]Filter
}{byType: make(map[string]Filter), byMetadataType: make(map[string]Filter)}

// Register makes a filter known under all its type URLs. It is meant for init
// functions and panics when a type URL is taken, since two filters that claim
// one configuration cannot both be right.
func Register(f Filter) {
	registry.Lock()
	defer registry.Unlock()
	add(registry.byType, f, f.TypeURLs())
	if p, ok := f.(MetadataParser); ok {
		add(registry.byMetadataType, f, p.MetadataTypeURLs())
	}
}

func add(byType map[string]Filter, f Filter, urls []string) {
	for _, url := range urls {
		if old, ok := byType[url]; ok {
			panic(fmt.Sprintf("httpfilter: %T and %T both register for %q", old, f, url))
		}
		byType[url] = f
	}
}

// Get returns the filter registered for the type URL, or nil.
func Get(typeURL string) Filter {
	registry.RLock()
	defer registry.RUnlock()
	return registry.byType[typeURL]
}

// ParserOf returns the filter that reads metadata of the type URL, or nil.
func ParserOf(typeURL string) MetadataParser {
	registry.RLock()
	defer registry.RUnlock()
	p, _ := registry.byMetadataType[typeURL].(MetadataParser)
	return p
}
