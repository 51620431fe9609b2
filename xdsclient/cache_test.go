package xdsclient

import (
	"fmt"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// Given a resource that the client has, when another version of it is decoded, then the
// decoder can build on the value that it has of that name, and on no other.
func TestDecoderCanBuildOnTheLastValue(t *testing.T) {
	for _, features := range [][]string{nil, {"delta"}} {
		t.Run(fmt.Sprint(features), func(t *testing.T) {
			types := newTestTypes()
			decode := types.clusters.Decode
			last := map[string]string{}
			types.clusters.Decode = func(resource *anypb.Any, o DecodeOptions) (any, error) {
				value, err := decode(resource, o)
				name := string(types.clusters.NameOf(resource.GetValue()))
				last[name] = textOf(o.Last)
				c := new(clusterv3.Cluster)
				if err := proto.Unmarshal(o.LastBytes, c); err != nil || textOf(c) != last[name] {
					t.Errorf("the bytes of the last version are of %v, error %v, want %q", c, err, last[name])
				}
				return value, err
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
		types.clusters.Decode = func(resource *anypb.Any, o DecodeOptions) (any, error) {
			value, err := decode(resource, o)
			if err == nil && o.Last != nil && textOf(o.Last) == textOf(value) {
				value = o.Last
			}
			return value, err
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
		s.request()
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

func heartbeat(name, version string) proto.Message {
	return deltaResponse(&ResourceType{}, "", has(name, version, nil)).GetResources()[0]
}
