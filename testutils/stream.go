package testutils

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsname"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// stream is one stream of a client. After each request, and each update of the store, it computes from
// scratch what the client is to know, and sends what the client was not told.
type stream struct {
	store *store
	delta bool
	// onlyType is the type of a DPDS stream, whose requests may omit it; empty for ADS.
	onlyType string
	// due has a token when something may be due.
	due chan struct{}

	mu     sync.Mutex
	node   *corepb.Node
	types  map[string]*typeState
	nonces int
}

func newStream(s *service, delta bool, onlyType string) *stream {
	return &stream{
		store: s.store, delta: delta, onlyType: onlyType,
		due: make(chan struct{}, 1), types: map[string]*typeState{},
	}
}

// serve runs a stream until the client, an error or the server ends it. request takes a request, responses
// returns what is due.
func serve[Req, Resp any](s *service, st *stream, wire grpc.BidiStreamingServer[Req, Resp],
	request func(*Req) error, responses func() []*Resp) error {
	stop, err := s.begin(st)
	if err != nil {
		return err
	}
	defer s.end(st)
	ended := make(chan error, 2)
	s.running.Go(func() {
		for {
			req, err := wire.Recv()
			if err == nil {
				err = request(req)
			}
			if err != nil {
				ended <- err
				return
			}
			s.notify()
			wake(st.due)
		}
	})
	s.running.Go(func() {
		for {
			select {
			case <-st.due:
			case <-wire.Context().Done():
				return
			}
			all := responses()
			s.notify()
			for _, resp := range all {
				if err := wire.Send(resp); err != nil {
					ended <- err
					return
				}
			}
		}
	})
	select {
	case err := <-ended:
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	case <-stop:
		return errStopped
	}
}

// begin returns the state of the type of a request. locators are those that it subscribes to.
func (st *stream) begin(typeURL string, node *corepb.Node, locators []*discoverypb.ResourceLocator) (ts *typeState, first bool, err error) {
	if len(st.types) == 0 {
		st.node = node
	}
	typeURL = cmp.Or(typeURL, st.onlyType)
	if typeURL == "" || st.onlyType != "" && typeURL != st.onlyType {
		return nil, false, status.Errorf(codes.InvalidArgument, "type_url is %q", typeURL)
	}
	ts = st.types[typeURL]
	if first = ts == nil; first {
		ts = &typeState{
			typeURL: typeURL, complete: !st.delta && hasWildcard(typeURL), byLocators: len(locators) > 0,
			subscribed: topics{}, told: facts{}, reply: TypeStatus{TypeURL: typeURL},
		}
		st.types[typeURL] = ts
	}
	if !ts.byLocators && len(locators) > 0 {
		return nil, false, status.Errorf(codes.InvalidArgument, "locators of %s after a first request without: they would be ignored (xRFC TP2)", typeURL)
	}
	return ts, first, nil
}

// answered notes an ACK or, with an error, a NACK. In SotW a nonce is repeated when names change: the first
// request with it is the answer.
func (ts *typeState) answered(nonce string, fault *statuspb.Status) {
	if nonce == "" || nonce != ts.nonce || ts.reply.Answered {
		return
	}
	ts.reply.Answered = true
	if fault != nil {
		ts.reply.NACK = status.FromProto(fault)
	}
}

// subscribe adds a subscription. The client is told what there is even if it was told before.
func (ts *typeState) subscribe(tp topic, sub subscription) {
	ts.forget(tp, sub)
	ts.subscribed[tp] = sub
}

func (ts *typeState) unsubscribe(tp topic) {
	delete(ts.subscribed, tp)
	delete(ts.told, tp)
}

// sotwRequest takes a request of a SotW stream.
func (st *stream) sotwRequest(req *discoverypb.DiscoveryRequest) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	ts, first, err := st.begin(req.GetTypeUrl(), req.GetNode(), req.GetResourceLocators())
	if err != nil {
		return err
	}
	if nonce := req.GetResponseNonce(); nonce != "" && nonce != ts.nonce {
		return nil // it has crossed a response, for which the client will send another
	}
	ts.answered(req.GetResponseNonce(), req.GetErrorDetail())
	list := topicsOf(ts.byLocators, req.GetResourceNames(), req.GetResourceLocators())
	if len(list) == 0 && !ts.named && ts.complete {
		list[topic{name: wildcard}] = subscription{name: wildcard}
	} else if len(list) > 0 {
		ts.named = true
	}
	for tp := range ts.subscribed {
		if _, ok := list[tp]; !ok {
			ts.unsubscribe(tp)
		}
	}
	for tp, sub := range list {
		if _, ok := ts.subscribed[tp]; !ok {
			ts.subscribe(tp, sub)
			ts.unanswered = ts.complete
		}
	}
	ts.unanswered = ts.unanswered || first && ts.complete
	return nil
}

// deltaRequest takes a request of a delta stream.
func (st *stream) deltaRequest(req *discoverypb.DeltaDiscoveryRequest) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	ts, first, err := st.begin(req.GetTypeUrl(), req.GetNode(), req.GetResourceLocatorsSubscribe())
	if err != nil {
		return err
	}
	ts.answered(req.GetResponseNonce(), req.GetErrorDetail())
	for tp := range topicsOf(ts.byLocators, req.GetResourceNamesUnsubscribe(), req.GetResourceLocatorsUnsubscribe()) {
		ts.unsubscribe(tp)
	}
	asked := topicsOf(ts.byLocators, req.GetResourceNamesSubscribe(), req.GetResourceLocatorsSubscribe())
	if first && len(asked) == 0 && hasWildcard(ts.typeURL) {
		asked.add(wildcard, nil, false)
	}
	for tp, sub := range asked {
		ts.subscribe(tp, sub)
		ts.unanswered = ts.unanswered || tp.name == wildcard
	}
	if first {
		ts.resume(req.GetInitialResourceVersions())
	}
	return nil
}

// resume notes what a client has from an earlier stream. Versions are by name: one says nothing if there are
// several locators of the name.
func (ts *typeState) resume(versions map[string]string) {
	for name, version := range versions {
		key := topic{name: xdsname.Canonical(name)}
		if ts.byLocators {
			n := 0
			for tp := range ts.subscribed {
				if tp.name == key.name {
					key, n = tp, n+1
				}
			}
			if n != 1 {
				continue
			}
		}
		ts.told[key] = fact{variant: &variant{name: name, version: version}}
	}
}

// sotwResponses returns what is due.
func (st *stream) sotwResponses() (all []*discoverypb.DiscoveryResponse) {
	st.compose(func(ts *typeState, n news, version string) (said bool) {
		resp := ts.sotw(n)
		if resp == nil {
			return false
		}
		ts.nonce = st.nextNonce()
		resp.VersionInfo, resp.Nonce = version, ts.nonce
		all = append(all, resp)
		return true
	})
	return all
}

// deltaResponses returns what is due.
func (st *stream) deltaResponses() (all []*discoverypb.DeltaDiscoveryResponse) {
	st.compose(func(ts *typeState, n news, version string) (said bool) {
		resp := ts.delta(n)
		if resp == nil {
			return false
		}
		if ts.repeats(n.gone) {
			wake(st.due)
		}
		ts.nonce = st.nextNonce()
		resp.SystemVersionInfo, resp.Nonce = version, ts.nonce
		all = append(all, resp)
		return true
	})
	return all
}

func (st *stream) nextNonce() string {
	st.nonces++
	return fmt.Sprint("nonce-", st.nonces)
}

// makeOrder is the order of types in which nothing refers to what the client does not have yet.
var makeOrder = []string{dynparam.MapTypeURL, typeurl.Cluster, typeurl.Endpoints, typeurl.Listener, typeurl.RouteConfiguration}

// compose has what is due said, from one state of the store. Clusters and their endpoints are lost only after
// all other types have changed.
func (st *stream) compose(say func(ts *typeState, n news, version string) (said bool)) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.store.mu.Lock()
	defer st.store.mu.Unlock()
	version := fmt.Sprint(st.store.version)
	next := func(ts *typeState, keepLost bool) {
		wanted := ts.wanted(st.store, st.node)
		if keepLost {
			ts.keepLost(wanted)
		}
		if say(ts, ts.compare(wanted), version) {
			ts.unanswered = false
			ts.reply.Sent, ts.reply.Answered, ts.reply.NACK = version, false, nil
		}
	}
	types := slices.SortedFunc(maps.Values(st.types), func(a, b *typeState) int {
		return cmp.Or(cmp.Compare(makeRank(a.typeURL), makeRank(b.typeURL)), strings.Compare(a.typeURL, b.typeURL))
	})
	breaks := func(ts *typeState) bool { return ts.typeURL == typeurl.Cluster || ts.typeURL == typeurl.Endpoints }
	for _, ts := range types {
		next(ts, breaks(ts))
	}
	for _, ts := range types {
		if breaks(ts) {
			next(ts, false)
		}
	}
}

// makeRank is the place of a type in makeOrder; others are last.
func makeRank(typeURL string) int {
	if i := slices.Index(makeOrder, typeURL); i >= 0 {
		return i
	}
	return len(makeOrder)
}
