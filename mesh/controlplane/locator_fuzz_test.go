package controlplane

import (
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdstest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

func fuzzLocator(name, key, value string) *discoverypb.ResourceLocator {
	c, err := dynparam.Exact(map[string]string{key: value})
	if err != nil {
		panic(err)
	}
	return &discoverypb.ResourceLocator{Name: name, DynamicParameterConstraints: c.ToProto()}
}

// FuzzLocators sends requests with any locators to a SotW and a delta stream, between updates of their
// variants. It compares the store's index and choices with a search of all variants, and checks that
// ended streams leave nothing.
func FuzzLocators(f *testing.F) {
	faulty := &discoverypb.ResourceLocator{Name: "a", DynamicParameterConstraints: &discoverypb.DynamicParameterConstraints{
		KeyConstraints: map[string]*discoverypb.DynamicParameterConstraints_KeyConstraints{"k": {}},
	}}
	for _, list := range [][]*discoverypb.ResourceLocator{
		{fuzzLocator("a", "k", "1")},
		{fuzzLocator("a", "k", "1"), fuzzLocator("a", "k", "2"), {Name: "a"}, faulty},
		{fuzzLocator("*", "k", "1"), {Name: "*"}, fuzzLocator("xdstp://a/T/*", "k", "1"), fuzzLocator("xdstp://a/T/x", "k", "1")},
		{faulty, nil, {}},
	} {
		for _, typeURL := range []string{typeurl.Cluster, typeurl.RouteConfiguration, dynparam.MapTypeURL} {
			sotw, err := proto.Marshal(&discoverypb.DiscoveryRequest{TypeUrl: typeURL, ResourceLocators: list})
			xdstest.NoError(f, err)
			delta, err := proto.Marshal(&discoverypb.DeltaDiscoveryRequest{
				TypeUrl: typeURL, ResourceLocatorsSubscribe: list, ResourceLocatorsUnsubscribe: list[:1],
				InitialResourceVersions: map[string]string{"a": "1", "xdstp://a/T/x": "2", "gone": "3"},
			})
			xdstest.NoError(f, err)
			f.Add(sotw, delta, uint16(len(delta)))
		}
	}
	f.Fuzz(func(t *testing.T, forSotW, forDelta []byte, change uint16) {
		sotwRequest, deltaRequest := new(discoverypb.DiscoveryRequest), new(discoverypb.DeltaDiscoveryRequest)
		if proto.Unmarshal(forSotW, sotwRequest) != nil || proto.Unmarshal(forDelta, deltaRequest) != nil {
			return
		}
		sotwStore, deltaStore := NewStore(), NewStore()
		p, d := newTestSotW(sotwStore), newTestDelta(deltaStore)
		for i := range 4 {
			// The second half unsubscribes.
			if i == 2 {
				sotwRequest.ResourceLocators = sotwRequest.GetResourceLocators()[len(sotwRequest.GetResourceLocators())/2:]
				deltaRequest.ResourceLocatorsSubscribe, deltaRequest.ResourceLocatorsUnsubscribe = deltaRequest.GetResourceLocatorsUnsubscribe(), deltaRequest.GetResourceLocatorsSubscribe()
			}
			if sub := p.subs[sotwRequest.GetTypeUrl()]; sub != nil {
				sotwRequest.ResponseNonce = sub.delivery.nonce
			}
			if !acceptable(t, p.handleRequest(proto.CloneOf(sotwRequest))) || !acceptable(t, d.handleRequest(proto.CloneOf(deltaRequest))) {
				return
			}
			if change>>i&1 == 1 {
				setVariants(t, sotwStore, sotwRequest.GetTypeUrl(), sotwRequest.GetResourceLocators(), int(change)+i)
				setVariants(t, deltaStore, deltaRequest.GetTypeUrl(), append(deltaRequest.GetResourceLocatorsSubscribe(), deltaRequest.GetResourceLocatorsUnsubscribe()...), int(change)+i)
			}
			if change>>(8+i)&1 == 0 {
				discard(t, p)
				pushed(t, d)
			}
			checkIndex(t, sotwStore, p.stream)
			checkIndex(t, deltaStore, d.stream)
		}
		for store, s := range map[*Store]*stream{sotwStore: p.stream, deltaStore: d.stream} {
			checkRelease(t, store, s)
		}
	})
}

// acceptable reports whether the stream continues. It fails the test if the stream ended with a code
// other than for invalid requests.
func acceptable(t *testing.T, err error) bool {
	t.Helper()
	if c := status.Code(err); c != codes.OK && c != codes.InvalidArgument && c != codes.ResourceExhausted {
		t.Fatalf("handle: %v", err)
	}
	return err == nil
}

// setVariants stores and deletes variants under the names of locators.
func setVariants(t *testing.T, store *Store, typeURL string, locators []*discoverypb.ResourceLocator, value int) {
	t.Helper()
	for i, l := range locators {
		name := l.GetName()
		if name == "" || name == wildcardName || keyOf(name).isGlob() || typeURL == "" {
			continue
		}
		update(t, store, func(tx *Tx) {
			p := map[string]string{"k": fmt.Sprint((value + i) % 3)}
			switch (value + i) % 5 {
			case 0:
				tx.DeleteVariant(typeURL, name, p)
			case 1:
				tx.SetVariantError(typeURL, name, p, status.New(codes.NotFound, "x"))
			case 2:
				tx.SetError(typeURL, name, status.New(codes.Internal, "x"))
			default:
				tx.SetNamed(name, p, &anypb.Any{TypeUrl: typeURL, Value: []byte(fmt.Sprint(value))})
			}
		})
	}
}
