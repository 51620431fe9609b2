package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
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
	// Moving is how long an endpoint is kept that no slice has any more, the constant Moving if it is zero.
	Moving time.Duration
	// Reload has signals of somebody who asks for a look; it may be nil.
	Reload <-chan os.Signal
	// AccessChanged is called when Closed may have another answer than before, by any goroutine. It must not wait. It may be nil.
	AccessChanged func()
	Log           *slog.Logger
}

// Source follows the objects of a cluster. It is site.Documents; GoneSince and the methods of other files that say so are safe
// for concurrent use, the others are for one goroutine.
type Source struct {
	opts  Options
	log   *slog.Logger
	watch *watching
	// services and endpointSlices are the objects of all namespaces that are read.
	services, endpointSlices []cache.SharedIndexInformer
	routes                   *routes
	places                   *places
	// wake has a value if something is marked.
	wake chan struct{}

	mu sync.Mutex
	// marked are the Services that may have changed, and routesMarked says that routes may have.
	marked       map[named]bool
	routesMarked bool
	// leftOut is that of SetLeftOut.
	leftOut map[string]string

	// The following is for the goroutine that reads.

	entries map[named]*entry
	// order has the keys of entries.
	order []named
	// again has when Services are to be marked again.
	again   map[named]time.Time
	content *folder.Content
	// reports are those on routes and policies.
	reports []meshroute.Report
}

// byService is the index of EndpointSlices by their Service.
const byService = "service"

// Open starts the informers, and waits until they have everything. It fails at once if the API server forbids what is needed, and
// when the context ends.
func Open(ctx context.Context, opts Options) (*Source, error) {
	s := newSource(opts)
	if err := s.watch.start(ctx); err != nil {
		s.Close()
		return nil, err
	}
	// The informers have everything, though they may not have called the handlers yet.
	for _, services := range s.services {
		for _, object := range services.GetStore().List() {
			s.mark(serviceOf(object))
		}
	}
	return s, nil
}

// newSource makes the informers.
func newSource(opts Options) *Source {
	opts.Domain, opts.Moving = cmp.Or(opts.Domain, "cluster.local"), cmp.Or(opts.Moving, Moving)
	if opts.AccessChanged == nil {
		opts.AccessChanged = func() {}
	}
	if opts.Namespaces = slices.Compact(slices.Sorted(slices.Values(opts.Namespaces))); len(opts.Namespaces) == 0 {
		opts.Namespaces = []string{""}
	}
	s := &Source{
		opts: opts, log: opts.Log, wake: make(chan struct{}, 1), marked: map[named]bool{},
		entries: map[named]*entry{}, again: map[named]time.Time{},
	}
	s.watch = newWatching(opts.Log, opts.Clients.answers)
	for _, namespace := range opts.Namespaces {
		services := s.watch.informer("services", opts.Clients.services(namespace), &corev1.Service{}, nil)
		s.services = append(s.services, services)
		s.onChange(services, func(object any) { s.mark(serviceOf(object)) })
		list := s.watch.informer("endpointslices.discovery.k8s.io", opts.Clients.endpointSlices(namespace), &discoveryv1.EndpointSlice{},
			cache.Indexers{byService: func(object any) ([]string, error) {
				of := sliceService(object.(*discoveryv1.EndpointSlice))
				return []string{of.String()}, nil
			}})
		s.endpointSlices = append(s.endpointSlices, list)
		s.onChange(list, func(object any) { s.mark(sliceService(object.(*discoveryv1.EndpointSlice))) })
	}
	s.routes, s.places = newRoutes(s), newPlaces(s)
	return s
}

// onChange calls a function with each object that is added, updated or deleted, of updates with the old one too: a slice may be
// given to another Service.
func (s *Source) onChange(informer cache.SharedIndexInformer, changed func(object any)) {
	// It fails only for an informer that was stopped.
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: changed,
		UpdateFunc: func(before, after any) {
			changed(before)
			changed(after)
		},
		DeleteFunc: func(object any) {
			if last, missed := object.(cache.DeletedFinalStateUnknown); missed {
				object = last.Obj
			}
			changed(object)
		},
	})
}

func serviceOf(object any) named {
	s := object.(*corev1.Service)
	return named{s.Namespace, s.Name}
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
	s.signal()
}

func (s *Source) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Read returns the present content.
func (s *Source) Read(context.Context) (*folder.Content, error) {
	now := time.Now()
	s.mu.Lock()
	marked, routesMarked := s.marked, s.routesMarked
	s.marked, s.routesMarked = map[named]bool{}, false
	s.mu.Unlock()
	for of, at := range s.again {
		if !now.Before(at) {
			marked[of] = true
		}
	}
	changed := s.content == nil
	for of := range marked {
		names := s.namesOf(of)
		if !s.update(of, now) {
			continue
		}
		changed = true
		// Routes depend on the names of services, but not on their endpoints, which change most.
		routesMarked = routesMarked || !slices.Equal(names, s.namesOf(of))
	}
	if routesMarked || s.content == nil {
		changed = s.routes.update() || changed
		reports := s.routeReports()
		changed = changed || !slices.Equal(reports, s.reports)
		s.reports = reports
	}
	if changed {
		s.content = s.join()
	}
	return s.content, nil
}

// namesOf returns the names of a Service's services.
func (s *Source) namesOf(of named) (names []string) {
	e := s.entries[of]
	if e == nil {
		return nil
	}
	for _, service := range e.services {
		names = append(names, service.Name)
		for _, a := range service.Aliases {
			names = append(names, a.Name)
		}
	}
	return names
}

// update makes the services of one Service again, and reports whether they differ.
func (s *Source) update(of named, now time.Time) (changed bool) {
	e := s.entries[of]
	object := s.service(of)
	switch {
	case e == nil && object == nil:
		return false
	case e == nil:
		e = &entry{moving: s.opts.Moving}
		s.entries[of] = e
		at, _ := slices.BinarySearchFunc(s.order, of, named.compare)
		s.order = slices.Insert(s.order, at, of)
	}
	changed, again := e.update(of, object, s.slicesOf(of), s.opts.Domain, now)
	delete(s.again, of)
	if !again.IsZero() {
		s.again[of] = again
	}
	if object == nil {
		delete(s.entries, of)
		at, _ := slices.BinarySearchFunc(s.order, of, named.compare)
		s.order = slices.Delete(s.order, at, at+1)
	}
	return changed
}

func (n named) compare(o named) int {
	return cmp.Or(cmp.Compare(n.namespace, o.namespace), cmp.Compare(n.name, o.name))
}

// service returns a Service, or nil.
func (s *Source) service(of named) *corev1.Service {
	for _, informer := range s.services {
		if object, there, _ := informer.GetStore().GetByKey(of.String()); there {
			return object.(*corev1.Service)
		}
	}
	return nil
}

// ServiceUID returns the UID of a Service, NAMESPACE/NAME, empty if there is none. It is safe for concurrent use.
func (s *Source) ServiceUID(name string) types.UID {
	var of named
	of.namespace, of.name, _ = strings.Cut(name, "/")
	if object := s.service(of); object != nil {
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

// Wait waits until something is marked, or is to be looked at again.
func (s *Source) Wait(ctx context.Context, until time.Time) (ok bool) {
	for _, at := range s.again {
		if until.IsZero() || at.Before(until) {
			until = at
		}
	}
	var timeout <-chan time.Time
	if !until.IsZero() {
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-ctx.Done():
		return false
	case <-s.wake:
	case <-timeout:
	case <-s.opts.Reload:
	}
	return true
}

// Close ends the informers.
func (s *Source) Close() { s.watch.close() }

// GoneSince is when the API server ceased to answer, zero if it answers. It is safe for concurrent use.
func (s *Source) GoneSince() time.Time { return s.watch.goneSince() }

// errForbidden is an error for missing permissions.
func errForbidden(resource string, err error) error {
	return fmt.Errorf("the API server does not let this server read %s: %w; see the ClusterRole in deploy/kubernetes", resource, err)
}

// ErrNoAnswer says that the API server does not answer.
var ErrNoAnswer = errors.New("the API server does not answer")
