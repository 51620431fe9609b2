package testutils_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/dynxds/dynxds/internal/dynwire"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdstest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/testutils"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// The worked examples of xRFC TP2. Headings are those of the text of 2021-08.

const (
	srds     = typeurl.Prefix + "envoy.config.route.v3.ScopedRouteConfiguration"
	dpdsName = "xdstp://xds.example.com/envoy.config.dynamic_parameters.v3.DynamicParameterConstraintsMap/x"
)

// eachByLocators is eachProtocol for clients that subscribe by locators.
func eachByLocators(t *testing.T, test func(t *testing.T, s *testutils.FakeServer, open func() *peer)) {
	eachProtocol(t, func(t *testing.T, s *testutils.FakeServer, open func() *peer) {
		test(t, s, func() *peer {
			p := open()
			p.byLocators = true
			return p
		})
	})
}

// "xDS Minor/Patch Version Negotiation".
func TestTP2_VersionNegotiation(t *testing.T) {
	eachByLocators(t, func(t *testing.T, s *testutils.FakeServer, open func() *peer) {
		s.Update(t, func(tx *testutils.Tx) {
			for patch := range 5 {
				put(tx, lds, fmt.Sprint("l xds.version.patch=", patch), "without")
			}
			put(tx, lds, "l xds.version.patch=5", "with")
		})
		for newest, want := range map[string]string{"0": "0}: without", "3": "3}: without", "4": "4}: without", "5": "5}: with", "9": "5}: with"} {
			p := open()
			p.subscribe(lds, "l xds.version.patch=0-"+newest)
			p.expect("up to "+newest, lds, "l {xds.version.patch="+want)
		}
	})
}

// "Sharding Clusters": one SRDS resource by an exact value, and all Clusters in ranges.
func TestTP2_ShardingClusters(t *testing.T) {
	eachByLocators(t, func(t *testing.T, s *testutils.FakeServer, open func() *peer) {
		s.Update(t, func(tx *testutils.Tx) {
			put(tx, srds, "scope shards=[4-6],[11-15]", "mine")
			put(tx, srds, "scope shards=[1-3]", "another's")
			for _, shard := range []string{"3", "4", "6", "7", "text"} {
				put(tx, cds, fmt.Sprintf("c%s shards=%s", shard, shard), "c")
			}
		})
		p := open()
		p.subscribe(srds, "scope shards=[4-6],[11-15]")
		p.expect("the scope", srds, `scope {shards="[4-6],[11-15]"}: mine`)
		p.subscribe(cds, "* shards=4-6")
		p.expect("Clusters", cds, "c4 {shards=4}: c", "c6 {shards=6}: c")

		// A Cluster moves into the client's shards, another one out of them.
		s.Update(t, func(tx *testutils.Tx) {
			tx.Delete(cds, "c7")
			put(tx, cds, "c7 shards=5", "c")
			tx.Delete(cds, "c4")
			put(tx, cds, "c4 shards=100", "c")
		})
		p.wants("one more", cds, []string{"c4 {shards=4}: c", "c6 {shards=6}: c", "c7 {shards=5}: c"}, []string{"c7 {shards=5}: c"})
		p.wants("one less", cds, []string{"c6 {shards=6}: c", "c7 {shards=5}: c"}, []string{"-c4 {shards=4}"})
	})
}

// The same with a glob collection: "all matching variants of the resource will be used".
func TestTP2_ShardingClustersByGlob(t *testing.T) {
	t.Parallel()
	const dir = "xdstp://a/envoy.config.cluster.v3.Cluster/d/"
	s := testutils.StartFakeServer(t)
	p := openPeer(t, s, adsService, true)
	p.byLocators = true
	for shard := range 4 {
		set(t, s, cds, fmt.Sprintf("%sc%d shard=%d", dir, shard, shard), "one")
	}
	p.subscribe(cds, dir+"* shard=0-1", dir+"* shard=9-10")
	p.expect("two shards, and none", cds, "-"+dir+"* {shard in [9-10]}", dir+"c0 {shard=0}: one", dir+"c1 {shard=1}: one")
	set(t, s, cds, dir+"c1 shard=0", "two")
	p.expect("a second variant", cds, dir+"c1 {shard=0}: two", dir+"c1 {shard=1}: one")
	s.Update(t, func(tx *testutils.Tx) { tx.DeleteVariant(cds, dir+"c1", map[string]string{"shard": "1"}) })
	p.expect("the first is gone", cds, "-"+dir+"c1 {shard=1}")
	set(t, s, cds, dir+"c9 shard=10", "three")
	p.expect("the other collection", cds, dir+"c9 {shard=10}: three")
}

// "Sharding Endpoints" and "Selecting Cluster Based on ACL": DPDS decides by the node which variant a client asks for.
func TestTP2_ConstraintsFromDPDS(t *testing.T) {
	eachByLocators(t, func(t *testing.T, s *testutils.FakeServer, open func() *peer) {
		useProxy := map[string]string{"friend": "false", "other": "true"}
		s.Update(t, func(tx *testutils.Tx) {
			tx.SetDPDS(dpdsName, func(node *corepb.Node) (dynparam.ByType, error) {
				value, ok := useProxy[node.GetId()]
				if !ok {
					return dynparam.ByType{}, status.Errorf(codes.PermissionDenied, "who is %s?", node.GetId())
				}
				return dynparam.NewByType(map[string]dynparam.Constraints{typeurl.Name(rds): xdstest.Constraints("use_proxy=" + value)})
			})
			put(tx, rds, "r use_proxy=true", "via proxy")
			put(tx, rds, "r use_proxy=false", "direct")
		})
		for node, want := range map[string]string{"friend": "r {use_proxy=false}: direct", "other": "r {use_proxy=true}: via proxy"} {
			p := open()
			p.node = &corepb.Node{Id: node}
			p.subscribe(dynparam.MapTypeURL, dpdsName)
			p.subscribe(rds, "r use_proxy="+p.learn(rds))
			p.expect(node, rds, want)
		}
		p := open()
		p.subscribe(dynparam.MapTypeURL, dpdsName)
		p.expect("a stranger", dynparam.MapTypeURL, "!"+dpdsName+" {}: PermissionDenied who is n?")
		s.Update(t, func(*testutils.Tx) { useProxy["n"] = "true" })
		if got := p.learn(rds); got != "true" {
			t.Errorf("the stranger is told use_proxy=%s", got)
		}
	})
}

// learn returns the value of use_proxy that the next response has for a type.
func (p *peer) learn(typeURL string) string {
	p.t.Helper()
	gotType, items := p.next()
	name, body, ok := strings.Cut(items[0], ": ")
	if gotType != dynparam.MapTypeURL || name != dpdsName || !ok {
		p.t.Fatalf("got %s %q", gotType, items)
	}
	return learned(p.t, body, typeURL)
}

func learned(t *testing.T, body, typeURL string) string {
	t.Helper()
	m, err := dynwire.UnmarshalMap(anyOf(dynparam.MapTypeURL, body))
	xdstest.NoError(t, err)
	constraints, err := dynparam.ByTypeFromProto(m)
	xdstest.NoError(t, err)
	parameters, ok := constraints.For(typeURL).Parameters()
	if !ok {
		t.Fatalf("the constraints are %v", constraints.For(typeURL))
	}
	return parameters.Map()["use_proxy"]
}

// DPDS as a service of its own, whose requests need no type.
func TestTP2_DPDSService(t *testing.T) {
	t.Parallel()
	s := testutils.StartFakeServer(t)
	all := xdstest.Constraints("use_proxy=true")
	s.Update(t, func(tx *testutils.Tx) {
		tx.SetDPDS(dpdsName, func(*corepb.Node) (dynparam.ByType, error) {
			return dynparam.NewByType(map[string]dynparam.Constraints{dynparam.AnyType: all, typeurl.Name(rds): all})
		})
	})
	for _, delta := range []bool{false, true} {
		p := openPeer(t, s, dpdsService, delta)
		p.subscribe("", dpdsName)
		if got := p.learn(rds); got != "true" {
			t.Errorf("delta %t: use_proxy=%s", delta, got)
		}
		p = openPeer(t, s, dpdsService, delta)
		p.subscribe(cds, "c")
		p.mustEnd(codes.InvalidArgument)
	}
	conn, err := grpc.NewClient(s.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	xdstest.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	resp := new(discoverypb.DiscoveryResponse)
	fetch := func(ctx context.Context, names ...string) {
		t.Helper()
		resp.Reset()
		xdstest.NoError(t, conn.Invoke(ctx, dpdsService+"FetchDynamicParameterConstraints", &discoverypb.DiscoveryRequest{ResourceNames: names}, resp))
	}
	fetch(testutils.Context(t), dpdsName)
	if r := resp.GetResources(); len(r) != 1 || !unwrap(t, r[0]).GetCacheControl().GetDoNotCache() {
		t.Errorf("the answer is %v, want a resource that must not be cached", resp)
	}
	fetch(testutils.Context(t), "another")
	if e := resp.GetResourceErrors(); len(e) != 1 || e[0].GetErrorDetail().GetCode() != int32(codes.NotFound) {
		t.Errorf("the answer is %v, want NOT_FOUND", resp)
	}
}

// "Dynamic Route Selection", with constraints that are inverted.
func TestTP2_DynamicRouteSelection(t *testing.T) {
	eachByLocators(t, func(t *testing.T, s *testutils.FakeServer, open func() *peer) {
		s.Update(t, func(tx *testutils.Tx) {
			for _, env := range []string{"prod", "NOT_prod"} {
				for _, version := range []string{"v1", "NOT_v1"} {
					put(tx, rds, fmt.Sprintf("r env=%s version=%s", env, version), "routes")
				}
			}
		})
		for asked, want := range map[string]string{
			"env!=prod version!=v1": "env=NOT_prod,version=NOT_v1", "env=prod version!=v1": "env=prod,version=NOT_v1",
			"env!=prod version=v1": "env=NOT_prod,version=v1", "env=prod version=v1": "env=prod,version=v1",
		} {
			p := open()
			p.subscribe(rds, "r "+asked)
			p.expect(asked, rds, "r {"+want+"}: routes")
		}
	})
}

// "Matching Ambiguity", the expected order of changes. The client has a resource at every moment.
func TestTP2_TransitionInFourSteps(t *testing.T) {
	eachByLocators(t, func(t *testing.T, s *testutils.FakeServer, open func() *peer) {
		p := open()
		for _, env := range []string{"prod", "test"} {
			set(t, s, rds, "r env="+env, env)
		}
		p.subscribe(rds, "r env=prod")
		p.expect("at first", rds, "r {env=prod}: prod")

		// 1. Clients send version=v1, which no variant has.
		p.unsubscribe(rds, "r env=prod")
		p.subscribe(rds, "r env=prod version=v1")
		p.expect("1", rds, "r {env=prod}: prod")

		// 2. All existing resources get version=v1.
		s.Update(t, func(tx *testutils.Tx) {
			for _, env := range []string{"prod", "test"} {
				put(tx, rds, "r env="+env+" version=v1", env+" v1")
				tx.DeleteVariant(rds, "r", map[string]string{"env": env})
			}
		})
		p.expect("2", rds, "r {env=prod,version=v1}: prod v1")

		// 3. There are variants with version=v2, of which the client is not told.
		set(t, s, rds, "r env=prod version=v2", "prod v2")

		// 4. The client sends version=v2.
		p.unsubscribe(rds, "r env=prod version=v1")
		p.subscribe(rds, "r env=prod version=v2")
		p.expect("4", rds, "r {env=prod,version=v2}: prod v2")
	})
}

// "Matching Behavior and Best Practices": "the largest possible matching value is preferred".
func TestTP2_LargestMatchingValueIsPreferred(t *testing.T) {
	eachByLocators(t, func(t *testing.T, s *testutils.FakeServer, open func() *peer) {
		p := open()
		set(t, s, eds, "e shard=3", "three")
		p.subscribe(eds, "e shard=0-5")
		p.expect("3", eds, "e {shard=3}: three")
		set(t, s, eds, "e shard=5", "five")
		p.expect("5", eds, "e {shard=5}: five")
		s.Update(t, func(tx *testutils.Tx) { put(tx, eds, "e shard=10", "ten"); put(tx, eds, "e shard=4", "four") })
		s.Update(t, func(tx *testutils.Tx) { tx.DeleteVariant(eds, "e", map[string]string{"shard": "5"}) })
		p.expect("4", eds, "e {shard=4}: four")
	})
}

// A client takes a variant for all locators that it matches: so the variants of the others are sent with it.
func TestTP2_SeveralLocatorsOfAName(t *testing.T) {
	eachByLocators(t, func(t *testing.T, s *testutils.FakeServer, open func() *peer) {
		p := open()
		set(t, s, eds, "e shard=1", "one")
		set(t, s, eds, "e shard=3", "three")
		p.subscribe(eds, "e shard=0-1", "e shard=0-3")
		p.expect("at first", eds, "e {shard=1}: one", "e {shard=3}: three")
		set(t, s, eds, "e shard=1", "new")
		p.expect("one has changed", eds, "e {shard=1}: new", "e {shard=3}: three")

		denied := status.New(codes.PermissionDenied, "no")
		s.Update(t, func(tx *testutils.Tx) { tx.SetVariantError(eds, "e", map[string]string{"shard": "3"}, denied) })
		p.expect("one is denied", eds, "!e {shard in [0-3]}: PermissionDenied no")
		set(t, s, eds, "e shard=1", "newer")
		p.expect("the other has changed", eds, "e {shard=1}: newer", "!e {shard in [0-3]}: PermissionDenied no")
	})
}

// The removal of a variant from a collection has the constraints of a locator: what that has is sent again.
func TestTP2_RemovalForACollectionIsNotForALocator(t *testing.T) {
	t.Parallel()
	const dir = "xdstp://a/envoy.config.cluster.v3.Cluster/d/"
	s := testutils.StartFakeServer(t)
	p := openPeer(t, s, adsService, true)
	p.byLocators = true
	set(t, s, cds, dir+"c shard=2", "plain")
	set(t, s, cds, dir+"c env=prod shard=2", "of prod")
	p.subscribe(cds, dir+"*", dir+"c shard=2")
	p.expect("at first", cds, dir+"c {env=prod,shard=2}: of prod", dir+"c {shard=2}: plain")
	s.Update(t, func(tx *testutils.Tx) { tx.DeleteVariant(cds, dir+"c", map[string]string{"shard": "2"}) })
	p.expect("the locator has another variant", cds, dir+"c {env=prod,shard=2}: of prod")
	p.expect("the collection has lost one", cds, "-"+dir+"c {shard=2}")
	p.expect("the locator still has its own", cds, dir+"c {env=prod,shard=2}: of prod")
}

// The first request for a type decides whether the client subscribes by locators ("API Changes").
func TestTP2_FirstRequestDecides(t *testing.T) {
	eachProtocol(t, func(t *testing.T, s *testutils.FakeServer, open func() *peer) {
		set(t, s, rds, "r env=prod", "prod")
		set(t, s, rds, "r env=test", "test")
		p := open()
		p.subscribe(rds, "r")
		p.wants("by names there is one variant, without parameters", rds, []string{"prod"}, []string{"r: prod"})
		p.byLocators = true
		p.subscribe(rds, "r env=test")
		p.mustEnd(codes.InvalidArgument)
	})
}
