package xdsclient

import (
	"fmt"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/testutils"
)

// The same bytes keep the same value, are not decoded, cause no call to a watcher, and are ACKed.
func TestUnchangedResourceCostsNothing(t *testing.T) {
	for name, form := range map[string]func(proto.Message) proto.Message{
		"bare":             func(m proto.Message) proto.Message { return m },
		"wrapped":          func(m proto.Message) proto.Message { return wrap(t, "a", m) },
		"wrapped nameless": func(m proto.Message) proto.Message { return wrap(t, "", m) },
	} {
		t.Run(name, func(t *testing.T) {
			overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
				a, _ := listen(t, c, types.clusters, "a")
				s := server.asked()
				s.send(types.clusters, "1", "n1", form(cluster("a", "1")))
				s.request()
				value := a.cluster("1")
				s.send(types.clusters, "2", "n2", form(cluster("a", "1")))
				check(t, s.request(), want{typ: types.clusters, names: []string{"a"}, version: "2", nonce: "n2"})
				a.silent()
				types.wantDecoded(t, 1)
				late, _ := listen(t, c, types.clusters, "a")
				if late.cluster("1") != value {
					t.Error("the value was replaced")
				}
				// And a change is noticed.
				s.send(types.clusters, "3", "n3", form(cluster("a", "2")))
				a.cluster("2")
				s.send(types.clusters, "4", "n4", form(cluster("a", "1")))
				a.cluster("1")
				types.wantDecoded(t, 3)
			})
		})
	}
}

// gRFC A88: ResourceChanged clears an ambient error, also if it brings the same
// value.
func TestUnchangedResourceClearsNACK(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		a, _ := listen(t, c, types.clusters, "a")
		s := server.stream()
		s.send(types.clusters, "1", "n1", cluster("a", "1"))
		value := a.cluster("1")
		s.send(types.clusters, "2", "n2", badCluster("a", "x"))
		a.ambient(KindInvalid)
		s.send(types.clusters, "3", "n3", badCluster("a", "x"))
		a.silent() // the same error again is no news
		s.send(types.clusters, "4", "n4", badCluster("a", "y"))
		a.ambient(KindInvalid)
		decoded := types.decoded.Load()
		s.send(types.clusters, "5", "n5", cluster("a", "1"))
		if a.cluster("1") != value {
			t.Error("the value was replaced")
		}
		if types.decoded.Load() != decoded {
			t.Error("the cached version was decoded again")
		}
	})
}

// gRFC A88, "Handling Data Errors": with fail_on_data_errors a NACK withdraws the
// cached resource.
func TestNACKWithFailOnDataErrors(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		a, _ := listen(t, c, types.clusters, "a")
		s := server.stream()
		s.send(types.clusters, "1", "n1", cluster("a", "1"))
		a.cluster("1")
		s.send(types.clusters, "2", "n2", badCluster("a", "x"))
		a.fault(KindInvalid)
		late, _ := listen(t, c, types.clusters, "a")
		late.fault(KindInvalid)
		s.send(types.clusters, "3", "n3", cluster("a", "1"))
		allHear("1", a, late)
	}, testutils.ServerFeatures("fail_on_data_errors"))
}

// Envoy, xDS protocol, "Deleting Resources"; gRFC A88, "Handling Data Errors": with
// fail_on_data_errors a deletion withdraws the cached resource.
func TestOmittedResourceIsDeleted(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		a, b := listenBoth(t, c, types.clusters, "a", "b")
		bad, _ := listen(t, c, types.clusters, "bad")
		e, _ := listen(t, c, types.endpoints, "e")
		s := server.stream()
		s.send(types.clusters, "1", "n1", cluster("a", "1"), cluster("b", "1"), badCluster("bad", "x"))
		allHear("1", a, b)
		bad.fault(KindInvalid)
		s.send(types.endpoints, "1", "n2", endpoints("e"))
		e.value()
		// A resource that is watched from now on may be later than the response.
		late, _ := listen(t, c, types.clusters, "late")

		s.send(types.clusters, "2", "n3", cluster("b", "1"))
		if err := a.fault(KindDoesNotExist); err.Code != codes.NotFound {
			t.Errorf("the error has code %v, want NOT_FOUND (gRFC A88)", err.Code)
		}
		bad.fault(KindDoesNotExist)
		allSilent(b, late)
		// Types without full state are never deleted by omission.
		s.send(types.endpoints, "2", "n4")
		e.silent()

		s.send(types.clusters, "3", "n5")
		b.fault(KindDoesNotExist)
		a.silent() // told once
		gone, _ := listen(t, c, types.clusters, "a")
		gone.fault(KindDoesNotExist)
		s.send(types.clusters, "4", "n6", cluster("a", "1"))
		allHear("1", a, gone)
	}, testutils.ServerFeatures("fail_on_data_errors"))
}

// gRFC A88, "Handling Data Errors" and "Deprecating ignore_resource_deletion": a
// deletion leaves the cached resource in use, with or without the feature of gRFC
// A53.
func TestDeletionIsAmbientByDefault(t *testing.T) {
	for _, features := range [][]string{nil, {"ignore_resource_deletion"}} {
		t.Run(fmt.Sprint(features), func(t *testing.T) {
			overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
				a, _ := listen(t, c, types.clusters, "a")
				s := server.stream()
				s.send(types.clusters, "1", "n1", cluster("a", "1"))
				value := a.cluster("1")
				s.send(types.clusters, "2", "n2")
				if err := a.ambient(KindDoesNotExist); err.Code != codes.NotFound {
					t.Errorf("the error has code %v, want NOT_FOUND", err.Code)
				}
				late, _ := listen(t, c, types.clusters, "a")
				late.cluster("1")
				late.ambient(KindDoesNotExist)
				s.send(types.clusters, "3", "n3")
				a.silent()
				// That it is back clears the error.
				s.send(types.clusters, "4", "n4", cluster("a", "1"))
				if a.cluster("1") != value {
					t.Error("the value was replaced")
				}
				types.wantDecoded(t, 1)
				// What never was there has nothing to stay in use.
				never, _ := listen(t, c, types.clusters, "never")
				never.fault(KindDoesNotExist)
			}, testutils.ServerFeatures(features...))
		})
	}
}

// gRFC A53 yields to the feature that A88 replaces it by.
func TestFailOnDataErrorsWinsOverIgnoreResourceDeletion(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		a, _ := listen(t, c, types.clusters, "a")
		s := server.stream()
		s.send(types.clusters, "1", "n1", cluster("a", "1"))
		a.cluster("1")
		s.send(types.clusters, "2", "n2")
		a.fault(KindDoesNotExist)
	}, testutils.ServerFeatures("ignore_resource_deletion", "fail_on_data_errors"))
}

// Given a resource that the client has, when another version of it is decoded, then the
// decoder can build on the value that it has of that name, and on no other.
func TestDecoderCanBuildOnTheLastValue(t *testing.T) {
	for _, features := range [][]string{nil, {"delta"}} {
		t.Run(fmt.Sprint(features), func(t *testing.T) {
			types := newTestTypes()
			decode := types.clusters.Decode
			last := map[string]string{}
			types.clusters.Decode = func(resource *anypb.Any, o DecodeOptions) (string, any, error) {
				name, value, err := decode(resource, o)
				before, raw := o.Last(name)
				last[name] = textOf(before)
				c := new(clusterv3.Cluster)
				if err := proto.Unmarshal(raw, c); err != nil || textOf(c) != last[name] {
					t.Errorf("the bytes of the last version are of %v, error %v, want %q", c, err, last[name])
				}
				if got, raw := o.Last("other"); got != nil || raw != nil {
					t.Errorf("Last of a name that nothing is watched under is %v, %q", got, raw)
				}
				return name, value, err
			}
			k := newCore(t, features...)
			k.watchClusters(types, 2)
			k.answer()
			push := func(nonce string, texts ...string) {
				resources := make([]part, 0, len(texts))
				r := &discoveryv3.DiscoveryResponse{TypeUrl: types.clusters.TypeURL, VersionInfo: nonce, Nonce: nonce}
				for i, text := range texts {
					c := cluster(fmt.Sprint("cluster-", i), text)
					r.Resources = append(r.Resources, pack(t, c))
					resources = append(resources, has(fmt.Sprint("cluster-", i), nonce+text, c))
				}
				if features != nil {
					k.push(k.delta(types.clusters, nonce, resources...))
				} else {
					k.push(mustMarshal(t, r))
				}
			}
			push("1", "a", "b")
			if last["cluster-0"] != "" || last["cluster-1"] != "" {
				t.Errorf("Last before the first version: %v", last)
			}
			push("2", "c", "b")
			if last["cluster-0"] != "a" {
				t.Errorf("Last is %q, want the version before", last["cluster-0"])
			}
			push("3", "d", "e")
			if last["cluster-0"] != "c" || last["cluster-1"] != "b" {
				t.Errorf("Last is %v, want the versions before", last)
			}
		})
	}
}

func textOf(value any) string {
	c, _ := value.(*clusterv3.Cluster)
	return c.GetAltStatName()
}

// Given a decoder that returns the last value, as only what it ignores has changed, when such a version
// comes, then watchers are not called, and the new version is the one that the client has.
func TestVersionOfTheSameValueIsNoNews(t *testing.T) {
	overSotW(t, func(t *testing.T, types *testTypes, server *script, c *XDSClient) {
		decode := types.clusters.Decode
		types.clusters.Decode = func(resource *anypb.Any, o DecodeOptions) (string, any, error) {
			name, value, err := decode(resource, o)
			if last, _ := o.Last(name); err == nil && last != nil && textOf(last) == textOf(value) {
				value = last
			}
			return name, value, err
		}
		version := func(text, note string) *clusterv3.Cluster {
			return &clusterv3.Cluster{Name: "a", AltStatName: text, EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{ServiceName: note}}
		}
		a, _ := listen(t, c, types.clusters, "a")
		s := server.asked()
		s.send(types.clusters, "1", "n1", version("text", "note"))
		s.request()
		value := a.cluster("text")
		s.send(types.clusters, "2", "n2", version("text", "another"))
		check(t, s.request(), want{typ: types.clusters, names: []string{"a"}, version: "2", nonce: "n2"})
		a.silent()
		late, _ := listen(t, c, types.clusters, "a")
		if late.cluster("text") != value {
			t.Error("the value was replaced")
		}
		dump := c.Dump().Resources
		got := new(clusterv3.Cluster)
		if len(dump) != 1 || dump[0].Version != "2" || dump[0].Any().UnmarshalTo(got) != nil || got.GetEdsClusterConfig().GetServiceName() != "another" {
			t.Errorf("the dump has %+v, want version 2", dump)
		}
		// It clears an error, as the same bytes do.
		s.send(types.clusters, "3", "n3", badCluster("a", "x"))
		a.ambient(KindInvalid)
		s.send(types.clusters, "4", "n4", version("text", "third"))
		if a.cluster("text") != value {
			t.Error("the value was replaced")
		}
		s.send(types.clusters, "5", "n5", version("changed", "third"))
		a.cluster("changed")
	})
}
