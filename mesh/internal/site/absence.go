package site

import (
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/dynxds/dynxds/internal/bounds"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/mesh/internal/folder"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

// absence writes what clients are told that dial a service that does not exist. It is safe for concurrent use.
type absence struct {
	published atomic.Pointer[dialable]
	// compared bounds the bytes of names that are compared with others: clients may ask for any number of names.
	compared *rate.Limiter
}

const (
	// maxWord bounds the names that are compared with others, in bytes.
	maxWord = 100
	// maxCompared is how many bytes are compared in a second, and at once. They take about 100 ns each, a fiftieth of the time.
	maxCompared = 200_000
)

func newAbsence() *absence { return &absence{compared: rate.NewLimiter(maxCompared, maxCompared)} }

// dialable is what is published.
type dialable struct {
	content *folder.Content
	mesh    *meshroute.Mesh
}

// text is a controlplane.Options.Absence.
func (a *absence) text(typeURL, name string, allowed func(string) bool) string {
	d := a.published.Load()
	if typeURL != meshroute.ListenerType || d == nil {
		return ""
	}
	service, listener := name, func(service string) string { return service }
	if strings.HasPrefix(name, xdsname.Prefix) {
		service, listener = name[strings.LastIndexByte(name, '/')+1:], d.mesh.ListenerName
	}
	text := "there is no service " + bounds.Quote(service)
	if len(service) > maxWord || !a.compared.AllowN(time.Now(), min((len(d.content.Services)+len(d.content.Resources))*len(service), maxCompared)) {
		return text
	}
	var others []string // in the order of the documents, so that all clients are told the same
	add := func(other string) {
		if allowed(listener(other)) {
			others = append(others, other)
		}
	}
	for _, s := range d.content.Services {
		add(s.Name)
	}
	for _, r := range d.content.Resources {
		if r.Any.GetTypeUrl() == meshroute.ListenerType && !strings.HasPrefix(r.Name, xdsname.Prefix) {
			add(r.Name)
		}
	}
	if other := similar(service, others); other != "" {
		text += fmt.Sprintf("; did you mean %q?", other)
	}
	return text
}

// similar returns the name that a word may have been meant to be: one that differs by few letters, or else the closest one
// that begins with it or that it begins with, such as greeter for greet, or for greeter.default.svc.cluster.local: the first of several.
func similar(word string, names []string) string {
	if found := faults.Nearest(word, names); found != "" {
		return found
	}
	const least = 3
	found, distance := "", math.MaxInt
	for _, name := range names {
		short, long := min(len(word), len(name)), max(len(word), len(name))
		if short >= least && long-short < distance && strings.EqualFold(word[:short], name[:short]) {
			found, distance = name, long-short
		}
	}
	return found
}
