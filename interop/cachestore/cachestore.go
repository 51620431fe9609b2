// Package cachestore serves a cache of go-control-plane through package controlplane: clients get
// what the cache has for their node, with delta, errors in place of resources and flow control as
// our server has them, and the program that fills the cache stays as it is.
//
//	stores := cachestore.New(snapshots)
//	defer stores.Close()
//	server := controlplane.NewServer(controlplane.NewStore(), controlplane.Options{StoreFor: stores.For})
//
// It asks the cache for each name that a client subscribes to, when the first one does
// (controlplane.Store.OnDemand), and watches it until the last one has left. It has no variants:
// go-control-plane has no dynamic parameters, so constraints have no influence.
package cachestore

import (
	"context"
	"maps"
	"sync"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoverypb "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	cachev3 "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/stream/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/mesh/controlplane"
	tp2pb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

// Stores has a store for each node whose clients have asked, by the id of the node. It keeps them
// until Close. It is safe for concurrent use.
type Stores struct {
	cache cachev3.Cache
	ctx   context.Context
	close context.CancelFunc

	mu      sync.Mutex
	byNode  map[string]*controlplane.Store
	watches sync.WaitGroup
}

// New returns the Stores of a cache, which must answer requests for single names: a
// SnapshotCache is made with ads false.
func New(cache cachev3.Cache) *Stores {
	s := &Stores{cache: cache, byNode: make(map[string]*controlplane.Store)}
	s.ctx, s.close = context.WithCancel(context.Background())
	return s
}

// For is controlplane.Options.StoreFor. The nodes of one id are one to the cache, which gets the
// first of them.
func (s *Stores) For(_ context.Context, node *corepb.Node) (*controlplane.Store, error) {
	if node.GetId() == "" {
		return nil, status.Error(codes.InvalidArgument, "the node has no id, by which the cache distinguishes nodes")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	store := s.byNode[node.GetId()]
	if store == nil {
		store = controlplane.NewStore()
		w := &watcher{stores: s, store: store, node: node, stop: make(map[*controlplane.Demand]context.CancelFunc)}
		store.OnDemand("", w.update)
		s.byNode[node.GetId()] = store
	}
	return store, nil
}

// Close ends the watches of the cache. It is called after Server.Close.
func (s *Stores) Close() {
	s.mu.Lock()
	s.close()
	s.mu.Unlock()
	s.watches.Wait()
}

// watcher answers the demands of a store.
type watcher struct {
	stores *Stores
	store  *controlplane.Store
	node   *corepb.Node
	// stop ends the watches of demands. Only update uses it, whose calls are sequential.
	stop map[*controlplane.Demand]context.CancelFunc
}

// update is a controlplane.Source.
func (w *watcher) update(begun, ended []*controlplane.Demand) {
	for _, d := range ended {
		w.stop[d]()
		delete(w.stop, d)
	}
	w.stores.mu.Lock()
	defer w.stores.mu.Unlock()
	for _, d := range begun {
		ctx, cancel := context.WithCancel(w.stores.ctx)
		w.stop[d] = cancel
		if ctx.Err() == nil {
			w.stores.watches.Go(func() { w.watch(ctx, d) })
		}
	}
}

// watch answers a demand with what the cache has, whenever that changes, until the context ends.
func (w *watcher) watch(ctx context.Context, d *controlplane.Demand) {
	wildcard := d.Collection() && d.Name == "*"
	if d.Collection() && !wildcard {
		w.fail(d, status.New(codes.Unimplemented, "go-control-plane has no glob collections"))
		return
	}
	request := &discoverypb.DiscoveryRequest{Node: w.node, TypeUrl: d.TypeURL}
	if !wildcard {
		request.ResourceNames = []string{d.Name}
	}
	// The state of the client that the cache sees.
	client := stream.NewSotwSubscription(request.GetResourceNames(), true)
	members := make(map[string]bool) // of a wildcard
	for {
		responses := make(chan cachev3.Response, 1)
		cancel, err := w.stores.cache.CreateWatch(request, client, responses)
		if err != nil {
			w.fail(d, status.New(codes.Unavailable, "the cache refuses the watch: "+err.Error()))
			return
		}
		select {
		case <-ctx.Done():
		case response := <-responses:
			answer, err := response.GetDiscoveryResponse()
			if err == nil {
				err = w.answer(d, answer, members)
			}
			if err != nil {
				w.fail(d, status.New(codes.Internal, "what the cache has cannot be served: "+err.Error()))
			}
			request = proto.CloneOf(request)
			request.VersionInfo = response.GetResponseVersion()
			client.SetReturnedResources(response.GetReturnedResources())
		}
		if cancel != nil {
			cancel()
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// answer answers a demand with a response of the cache, which has all resources of the request.
// Versions are those that the store makes of their contents: the cache's change with any
// resource of the type.
func (w *watcher) answer(d *controlplane.Demand, response *discoverypb.DiscoveryResponse, members map[string]bool) error {
	if !d.Collection() {
		var r *controlplane.Resource
		if resources := response.GetResources(); len(resources) > 0 {
			var err error
			if r, err = controlplane.NewResource(&tp2pb.Resource{Name: d.Name, Resource: resources[0]}); err != nil {
				return err
			}
		}
		_, err := w.store.Update(func(tx *controlplane.Tx) { tx.Answer(d, r) })
		return err
	}
	var all []*controlplane.Resource
	for _, a := range response.GetResources() {
		m, err := a.UnmarshalNew()
		if err != nil {
			return err
		}
		r, err := controlplane.NewResource(&tp2pb.Resource{Name: cachev3.GetResourceName(m), Resource: a})
		if err != nil {
			return err
		}
		all = append(all, r)
	}
	_, err := w.store.Update(func(tx *controlplane.Tx) {
		gone := maps.Clone(members)
		for _, r := range all {
			tx.SetResource(r)
			members[r.Name()] = true
			delete(gone, r.Name())
		}
		for name := range gone {
			tx.Delete(d.TypeURL, name)
			delete(members, name)
		}
		tx.Answer(d, nil)
	})
	return err
}

func (w *watcher) fail(d *controlplane.Demand, st *status.Status) {
	// An answer that is an error is never at fault.
	_, _ = w.store.Update(func(tx *controlplane.Tx) { tx.AnswerError(d, st) })
}
