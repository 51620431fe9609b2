package xdsclient

import (
	"fmt"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

func TestCacheOverSotW(t *testing.T) {
	failOnDataErrors := []string{"fail_on_data_errors"}
	// A deletion leaves the cached resource in use.
	const deletion = `
		watch a      -> stream; req a
		send 1 a=x   -> ack 1 a; a = x
		send 2       -> ack 2 a; a ambient: does not exist
		watch late=a -> late = x; late ambient: does not exist
		same a late
		send 3       -> ack 3 a
		# That it is back clears the error.
		send 4 a=x   -> ack 4 a; a = x; late = x
		decoded 1
		# What never was there has nothing to stay in use.
		watch never  -> ack 4 a never
		send 5 a=x   -> ack 5 a never
		wait 15s     -> never: does not exist
	`
	runTranscripts(t, []transcriptTest{
		// gRFC A88: ResourceChanged clears an ambient error, also if it brings the same value.
		{name: "unchanged resource clears a NACK", over: "SotW", steps: `
			watch a    -> stream; req a
			send 1 a=x -> ack 1 a; a = x
			send 2 a!y -> nack 2 a @1; a ambient: invalid
			# The same error again is no news.
			send 3 a!y -> nack 3 a @1
			send 4 a!z -> nack 4 a @1; a ambient: invalid
			decoded 4
			send 5 a=x -> ack 5 a; a = x
			decoded 4
		`},
		// gRFC A88, "Handling Data Errors": with fail_on_data_errors a NACK withdraws the cached resource.
		{name: "NACK with fail_on_data_errors", over: "SotW", servers: failOnDataErrors, steps: `
			watch a      -> stream; req a
			send 1 a=x   -> ack 1 a; a = x
			send 2 a!y   -> nack 2 a @1; a: invalid
			watch late=a -> late: invalid
			send 3 a=x   -> ack 3 a; a = x; late = x
		`},
		// Envoy, xDS protocol, "Deleting Resources"; gRFC A88, "Handling Data Errors": with
		// fail_on_data_errors a deletion withdraws the cached resource.
		{name: "omitted resource", over: "SotW", servers: failOnDataErrors, steps: `
			watch a b bad e:e      -> stream; req a b bad; e.req e
			send 1 a=x b=x bad!y   -> nack 1 a b bad @; a = x; b = x; bad: invalid
			send e:1 e             -> e.ack 1 e; e:e =
			# A resource that is watched from now on may be later than the response.
			watch late             -> ack 1 a b bad late @
			send 2 b=x             -> ack 2 a b bad late; a: does not exist; bad: does not exist
			# Types without full state are never deleted by omission.
			send e:2               -> e.ack 2 e
			send 3                 -> ack 3 a b bad late; b: does not exist
			watch gone=a           -> gone: does not exist
			send 4 a=x             -> ack 4 a b bad late; a = x; gone = x
		`},
		// gRFC A88, "Handling Data Errors" and "Deprecating ignore_resource_deletion": with or without the
		// feature of gRFC A53.
		{name: "deletion", over: "SotW", steps: deletion},
		{name: "deletion with ignore_resource_deletion", over: "SotW", servers: []string{"ignore_resource_deletion"}, steps: deletion},
		// gRFC A53 yields to the feature that A88 replaces it by.
		{name: "deletion with both features", over: "SotW", servers: []string{"ignore_resource_deletion fail_on_data_errors"}, steps: `
			watch a    -> stream; req a
			send 1 a=x -> ack 1 a; a = x
			send 2     -> ack 2 a; a: does not exist
		`},
	})
}

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

// Envoy, xDS protocol, "TTL": a resource without a body and with a name and a version only says that
// the server still has it.
func TestHeartbeats(t *testing.T) {
	runTranscripts(t, []transcriptTest{
		{name: "over delta", over: "delta", steps: `
			watch a b               -> stream; req +a +b
			# Nothing is known of b, and its timer goes on.
			send 1 a@1=x b@1~       -> ack 1; a = x
			send 2 a@1~ unasked@1~  -> ack 2
			# A heartbeat of another version, as after a NACK, says nothing of the one in use; one of
			# the version in use ends the error.
			send 3 a@2!no           -> nack 3; a ambient: invalid
			send 4 a@2~             -> ack 4
			send 5 a@1~             -> ack 5; a = x
			wait 15s                -> b: timeout
			# Without a version it is no heartbeat.
			send 6 a@~              -> nack 6; a ambient: invalid
		`},
		// A heartbeat is a resource that is there.
		{name: "over SotW", over: "SotW", steps: `
			watch a b               -> stream; req a b
			send 1 a@7=x b@7=x      -> ack 1 a b; a = x; b = x
			send 2 a@7~             -> ack 2 a b; b ambient: does not exist
		`},
	})
}

func heartbeat(name, version string) proto.Message {
	return deltaResponse(&ResourceType{}, "", has(name, version, nil)).GetResources()[0]
}
