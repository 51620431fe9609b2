package controlplane

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdstest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
)

func newTestDelta(store *Store) *delta {
	return &delta{newTestStream(store, ProtocolDelta, Options{MaxResponseSize: 1 << 10})}
}

func handleDelta(t testing.TB, p *delta, req *discoverypb.DeltaDiscoveryRequest) {
	t.Helper()
	xdstest.NoError(t, p.handleRequest(req))
}

func update(t testing.TB, store *Store, change func(*Tx)) {
	t.Helper()
	if _, err := store.Update(change); err != nil {
		t.Fatal(err)
	}
}

// pushed returns what a push sends.
func pushed(t testing.TB, p *delta) []*discoverypb.DeltaDiscoveryResponse {
	t.Helper()
	var responses []*discoverypb.DeltaDiscoveryResponse
	if err := push(p.stream, p, func(resp *discoverypb.DeltaDiscoveryResponse) error {
		responses = append(responses, resp)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return responses
}

// The errors of subscriptions to one name are in the order of their constraints.
func TestErrorsAreInOrder(t *testing.T) {
	t.Parallel()
	store := NewStore()
	p := newTestDelta(store)
	req := &discoverypb.DeltaDiscoveryRequest{TypeUrl: typeurl.Endpoints}
	for shard := range 9 {
		req.ResourceLocatorsSubscribe = append(req.ResourceLocatorsSubscribe, fuzzLocator("n", "shard", fmt.Sprint(shard)))
	}
	update(t, store, func(tx *Tx) { tx.SetError(typeurl.Endpoints, "n", status.New(codes.Internal, "no")) })
	handleDelta(t, p, req)
	errs := pushed(t, p)[0].ResourceErrors
	for shard, e := range errs {
		if want := req.ResourceLocatorsSubscribe[shard].DynamicParameterConstraints; !proto.Equal(e.ResourceName.DynamicParameterConstraints, want) {
			t.Errorf("error %d is for %v", shard, e.ResourceName)
		}
	}
	if len(errs) != 9 {
		t.Errorf("there are %d errors", len(errs))
	}
	store.release(p.stream)
}

func TestDelta_AnswersToOldResponsesAreForgotten(t *testing.T) {
	t.Parallel()
	var d delivery
	for i := range 10 * maxUnanswered {
		d.sent("v", fmt.Sprint(i), false)
	}
	if len(d.unanswered) != maxUnanswered {
		t.Errorf("%d are unanswered", len(d.unanswered))
	}
	d.answered("0", nil, true)
	if d.ackedVersion != "" {
		t.Error("an answer to the first response was not ignored")
	}
	d.answered(fmt.Sprint(10*maxUnanswered-1), nil, true)
	if d.reply != ReplyACK {
		t.Errorf("after the ACK of the last: %v", d.reply)
	}
}

// FuzzDelta_Requests sends any requests to a stream, between updates. It compares the store's index with
// the subscriptions, and the responses with the store.
func FuzzDelta_Requests(f *testing.F) {
	for _, req := range []*discoverypb.DeltaDiscoveryRequest{
		{TypeUrl: typeurl.Cluster},
		{TypeUrl: typeurl.Cluster, ResourceNamesSubscribe: []string{"*", "a", "a", ""}, ResourceNamesUnsubscribe: []string{"a", "*"}},
		{TypeUrl: typeurl.Cluster, ResourceNamesUnsubscribe: []string{"*", "a"}},
		{TypeUrl: typeurl.RouteConfiguration, ResourceNamesSubscribe: []string{"xdstp://a/T/*", "xdstp://a/T/x?b=1&a=2", "xdstp://a/T/x?a=2&b=1"}},
		{TypeUrl: typeurl.RouteConfiguration, ResourceNamesUnsubscribe: []string{"xdstp://a/T/*"}, ResponseNonce: "x"},
		{TypeUrl: typeurl.Cluster, InitialResourceVersions: map[string]string{"a": "1", "gone": "2", "*": "3", "xdstp://a/T/*": "4"}},
		{},
	} {
		data, err := proto.Marshal(req)
		xdstest.NoError(f, err)
		f.Add(data, data, uint8(len(data)))
		f.Add(data, []byte{}, uint8(0))
	}
	f.Fuzz(func(t *testing.T, first, second []byte, change uint8) {
		store := NewStore()
		p := newTestDelta(store)
		client := map[string]deltaView{}
		for i, data := range [][]byte{first, second, first, second} {
			req := new(discoverypb.DeltaDiscoveryRequest)
			if proto.Unmarshal(data, req) != nil {
				return
			}
			if sub := p.subs[req.GetTypeUrl()]; sub == nil || sub.interest == interestUnknown {
				claimAll(client, req)
			}
			if !acceptable(t, p.handleRequest(req)) {
				return
			}
			if change>>i&1 == 1 {
				setAnyDelta(t, store, req, int(change)+i)
			}
			if change>>(4+i)&1 == 1 {
				continue // the client is slow
			}
			for _, resp := range pushed(t, p) {
				learn(t, client, resp)
			}
			checkIndex(t, store, p.stream)
			checkSent(t, store, p.stream, client)
		}
		checkRelease(t, store, p.stream)
	})
}

// deltaView is what a client knows of one type.
type deltaView map[nameKey]string

func (v deltaView) set(name, what string) { v[keyOf(name)] = what }

// claimAll records the versions in a request.
func claimAll(client map[string]deltaView, req *discoverypb.DeltaDiscoveryRequest) {
	view := deltaView{}
	for name, version := range req.GetInitialResourceVersions() {
		view.set(name, "resource "+version)
	}
	client[req.GetTypeUrl()] = view
}

func learn(t *testing.T, client map[string]deltaView, resp *discoverypb.DeltaDiscoveryResponse) {
	t.Helper()
	if resp.GetNonce() == "" {
		t.Fatalf("response without nonce: %v", resp)
	}
	view := client[resp.GetTypeUrl()]
	if view == nil {
		view = deltaView{}
		client[resp.GetTypeUrl()] = view
	}
	for _, r := range resp.GetResources() {
		view.set(r.GetName(), "resource "+r.GetVersion())
	}
	for _, name := range resp.GetRemovedResources() {
		view.set(name, "")
	}
	for _, e := range resp.GetResourceErrors() {
		view.set(e.GetResourceName().GetName(), "error "+e.GetErrorDetail().GetMessage())
	}
}

// checkSent compares what the client knows of each subscribed name with the store.
func checkSent(t *testing.T, store *Store, s *stream, client map[string]deltaView) {
	t.Helper()
	for typeURL, sub := range s.subs {
		table := store.tables[typeURL]
		if table == nil || sub.addressing == byLocators {
			continue
		}
		keys := slices.Collect(maps.Keys(table.slots))
		for a := range sub.asks() {
			keys = append(keys, a.name)
		}
		for _, key := range keys {
			tp := topic{name: key}
			if !sub.wants(tp, nil) || sub.isCollection(tp) {
				continue
			}
			want := ""
			inGlob := key.collection != "" && sub.inCollection(tp, nil, true) && table.slots[key.glob()] == nil
			switch e := table.slots[key].variant(""); {
			case !sub.named(tp) && !inGlob && !sub.wildcard():
				continue
			case e != nil && e.resource != nil:
				want = "resource " + e.resource.version
			case e != nil && (sub.named(tp) || inGlob):
				want = "error " + e.err.status.Message()
			}
			if got := client[typeURL][key]; got != want {
				t.Fatalf("%s: the client knows %q of %+v, want %q", typeURL, got, key, want)
			}
		}
	}
}

// known counts what the client was sent.
func known(sub *subscription) (n int) {
	for range sub.allSent {
		n++
	}
	return n
}

// setAnyDelta stores something under the names of a request, and deletes some of them.
func setAnyDelta(t *testing.T, store *Store, req *discoverypb.DeltaDiscoveryRequest, value int) {
	t.Helper()
	names := slices.Concat(req.GetResourceNamesSubscribe(), req.GetResourceNamesUnsubscribe(), slices.Sorted(maps.Keys(req.GetInitialResourceVersions())))
	for i, name := range names {
		if name == "" || name == wildcardName {
			continue
		}
		update(t, store, func(tx *Tx) {
			switch key := keyOf(name); {
			case (value+i)%4 == 0:
				tx.Delete(req.GetTypeUrl(), name)
			case (value+i)%4 == 1 || key.isGlob():
				tx.SetError(req.GetTypeUrl(), name, status.New(codes.NotFound, fmt.Sprint(value)))
			default:
				tx.SetNamed(name, nil, &anypb.Any{TypeUrl: req.GetTypeUrl(), Value: []byte(fmt.Sprint(value))})
			}
			if path, context, _ := strings.Cut(keyOf(name).collection, "?"); path != "" {
				member := strings.TrimSuffix(path, wildcardName) + "member?" + context
				tx.SetNamed(member, nil, &anypb.Any{TypeUrl: req.GetTypeUrl(), Value: []byte(fmt.Sprint(value))})
			}
		})
	}
}
