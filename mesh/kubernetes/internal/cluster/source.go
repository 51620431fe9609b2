package cluster

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/dynxds/dynxds/mesh/internal/folder"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

// Options are those of Open.
type Options struct {
	Clients *Clients
	// Namespaces are those whose objects are read; none are all.
	Namespaces []string
	// Domain is the cluster's domain, "cluster.local" if it is empty.
	Domain string
	Log    *slog.Logger
}

// Source follows the objects of a cluster. It is site.Documents; GoneSince and the methods of other files that say so are safe
// for concurrent use, the others are for one goroutine.
type Source struct {
	opts           Options
	watch          *watching
	services       objects[*corev1.Service]
	endpointSlices objects[*discoveryv1.EndpointSlice]
	routes         *routes
	// Of nodes and namespaces only labels are known; without permission to read nodes, there are none.
	nodes, namespaces objects[*metav1.PartialObjectMetadata]
	// wake has a value if something is marked.
	wake chan struct{}
	// access has a value if Authorize may decide otherwise than before.
	access chan struct{}

	mu sync.Mutex
	// marked are the Services that may have changed, and routesMarked says that routes may have.
	marked       map[named]bool
	routesMarked bool

	// The following is for the goroutine that reads.

	entries map[named]*entry
	// order has the keys of entries.
	order   []named
	content *folder.Content
	// reports are those on routes and policies.
	reports []meshroute.Report
}

// byService is the index of EndpointSlices by their Service.
const byService = "service"

// Open starts the informers, and waits until they have everything, and all is marked. It fails at once if the API server forbids what is needed, and
// when the context ends.
func Open(ctx context.Context, opts Options) (*Source, error) {
	s := newSource(opts)
	if err := s.watch.start(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// newSource makes the informers.
func newSource(opts Options) *Source {
	opts.Domain = cmp.Or(opts.Domain, "cluster.local")
	if opts.Namespaces = slices.Compact(slices.Sorted(slices.Values(opts.Namespaces))); len(opts.Namespaces) == 0 {
		opts.Namespaces = []string{""}
	}
	s := &Source{
		opts: opts, wake: make(chan struct{}, 1), access: make(chan struct{}, 1), marked: map[named]bool{},
		entries: map[named]*entry{},
	}
	s.watch = &watching{log: opts.Log, ask: opts.Clients.answers, noted: make(chan struct{}, 1)}
	s.services = follow(s, services, nil, &corev1.Service{}, func(of *corev1.Service) { s.mark(named{of.Namespace, of.Name}) })
	s.endpointSlices = follow(s, endpointSlices, nil, &discoveryv1.EndpointSlice{}, func(of *discoveryv1.EndpointSlice) { s.mark(sliceService(of)) })
	for _, informer := range s.endpointSlices {
		_ = informer.AddIndexers(cache.Indexers{byService: func(object any) ([]string, error) { // it does not fail before the start
			return []string{sliceService(object.(*discoveryv1.EndpointSlice)).String()}, nil
		}})
	}
	s.routes = newRoutes(s)
	s.nodes = follow(s, nodes, apierrors.IsForbidden, &metav1.PartialObjectMetadata{}, func(*metav1.PartialObjectMetadata) {})
	s.namespaces = follow(s, namespaces, nil, &metav1.PartialObjectMetadata{}, func(of *metav1.PartialObjectMetadata) {
		if isClosed(of) { // before or after
			Signal(s.access)
		}
		for _, informer := range s.services { // that wait for their namespace
			waiting, _ := informer.GetIndexer().ByIndex(cache.NamespaceIndex, of.Name) // the index is there
			for _, service := range waiting {
				s.mark(named{of.Name, service.(*corev1.Service).Name})
			}
		}
	})
	return s
}

// sliceService returns the Service that a slice belongs to, with an empty name if it has none.
func sliceService(s *discoveryv1.EndpointSlice) named {
	return named{s.Namespace, s.Labels[discoveryv1.LabelServiceName]}
}

// mark notes that a Service may have changed.
func (s *Source) mark(of named) {
	if of.name == "" {
		return
	}
	s.mu.Lock()
	s.marked[of] = true
	s.mu.Unlock()
	Signal(s.wake)
}

// Signal puts a value into a channel of one, if it has none.
func Signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Read returns the present content.
func (s *Source) Read(context.Context) (*folder.Content, error) {
	s.mu.Lock()
	marked, routesMarked := s.marked, s.routesMarked
	s.marked, s.routesMarked = map[named]bool{}, false
	s.mu.Unlock()
	now := time.Now() // not before the marks: a timer marks once, when its time has come
	changed, renamed := s.content == nil, map[named]bool{}
	for of := range marked {
		changed = s.update(of, now, renamed) || changed
	}
	// Routes depend on the names of services, but not on their endpoints, which change most.
	if routesMarked || len(renamed) > 0 || s.content == nil {
		changed = s.routes.update(renamed) || changed
		reports := s.routeReports()
		changed = changed || !slices.Equal(reports, s.reports)
		s.reports = reports
	}
	if changed {
		s.content = s.join()
	}
	return s.content, nil
}

// update makes the services of one Service again, and reports whether they differ. It adds the Service to those that are renamed if it
// comes, goes, or has other names.
func (s *Source) update(of named, now time.Time, renamed map[named]bool) (changed bool) {
	e := s.entries[of]
	object := s.services.get(of.String())
	if s.namespaces.get(of.namespace) == nil { // it may be closed
		object = nil
	}
	if e == nil && object == nil {
		return false
	}
	at, known := slices.BinarySearchFunc(s.order, of, named.compare)
	if !known {
		e = &entry{}
		s.entries[of] = e
		s.order = slices.Insert(s.order, at, of)
	}
	before, until := e.services, e.until
	changed = e.update(of, object, s.slicesOf(of), s.opts.Domain, now)
	if !e.until.IsZero() && e.until != until {
		time.AfterFunc(e.until.Sub(now), func() { s.mark(of) })
	}
	if object == nil {
		delete(s.entries, of)
		s.order = slices.Delete(s.order, at, at+1)
	}
	haveSameNames := func(a, b *meshroute.Service) bool { return a.Name == b.Name && slices.Equal(a.Aliases, b.Aliases) }
	if !known || object == nil || !slices.EqualFunc(before, e.services, haveSameNames) {
		renamed[of] = true
	}
	return changed
}

func (n named) compare(o named) int {
	return cmp.Or(cmp.Compare(n.namespace, o.namespace), cmp.Compare(n.name, o.name))
}

// ServiceUID returns the UID of a Service, NAMESPACE/NAME, empty if there is none. It is safe for concurrent use.
func (s *Source) ServiceUID(name string) types.UID {
	if object := s.services.get(name); object != nil {
		return object.UID
	}
	return ""
}

// slicesOf returns the EndpointSlices of a Service.
func (s *Source) slicesOf(of named) (list []*discoveryv1.EndpointSlice) {
	for _, informer := range s.endpointSlices {
		objects, _ := informer.GetIndexer().ByIndex(byService, of.String()) // the index is there
		for _, object := range objects {
			list = append(list, object.(*discoveryv1.EndpointSlice))
		}
	}
	return list
}

// join returns the content of all entries.
func (s *Source) join() *folder.Content {
	// Resources say where they come from by a path relative to Dir.
	c := &folder.Content{Dir: ".", Files: len(s.order), Policies: s.routes.policies, Separate: true, Reports: slices.Clone(s.reports)}
	for _, of := range s.order {
		e := s.entries[of]
		c.Services = append(c.Services, e.services...)
		for _, problem := range e.problems {
			c.Reports = append(c.Reports, meshroute.Report{Severity: meshroute.Error, Source: meshroute.Source{File: of.String()}, Message: problem, LeftOut: true})
		}
	}
	return c
}

// Changed has a value when something is marked.
func (s *Source) Changed() <-chan struct{} { return s.wake }

// Again is never: timers mark what is to be read again.
func (s *Source) Again() time.Time { return time.Time{} }

// AccessChanged has a value when Authorize may decide otherwise than before.
func (s *Source) AccessChanged() <-chan struct{} { return s.access }

// Close ends the informers.
func (s *Source) Close() { s.watch.close() }

// GoneSince is when the API server ceased to answer, zero if it answers. It is safe for concurrent use.
func (s *Source) GoneSince() time.Time { return s.watch.goneSince() }

// ErrNoAnswer says that the API server does not answer.
var ErrNoAnswer = errors.New("the API server does not answer")
