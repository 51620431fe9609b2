package dynparam

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/prototext"

	dynamicparametersv3 "github.com/dynxds/dynxds/proto/dynxds/dynamic_parameters/v3"
)

// on writes a message with the constraints on keys, as TP2 does.
func on(keys ...string) string {
	text := "{key_constraints:["
	for i, key := range keys {
		if i > 0 {
			text += ","
		}
		text += key
	}
	return text + "]}"
}

// is is the entry for a key that has to have a value.
func is(key, value string) string {
	return fmt.Sprintf(`{key:%q value:{constraints:[{value:%q}]}}`, key, value)
}

// isNot is its inverse.
func isNot(key, value string) string {
	return fmt.Sprintf(`{key:%q value:{constraints:[{value:%q}] invert:true}}`, key, value)
}

// upTo is the entry for a key whose value is an integer that is at most limit.
func upTo(key string, limit int) string {
	return fmt.Sprintf(`{key:%q value:{constraints:[{integer_range_list:{range:[{min_value:0 max_value:%d}]}}]}}`, key, limit)
}

// The examples of TP2, each under the heading that it has there: which variant a client
// chooses, and how many match. (Where the text puts a list of ranges in brackets that the
// message does not have, they are left out.)
func TestExamplesOfTP2(t *testing.T) {
	t.Parallel()
	type row struct {
		client string
		server []string
		then   Choice
	}
	only := func(i int) Choice { return Choice{Index: i, Rival: -1, Matching: 1} }
	prod, prodV1, prodV2 := on(is("env", "prod")), on(is("env", "prod"), is("version", "v1")), on(is("env", "prod"), is("version", "v2"))
	envs := []string{"{env=prod}", "{env=test}"}
	inV1 := []string{"{env=prod,version=v1}", "{env=test,version=v1}"}
	inBoth := append(inV1[:2:2], "{env=prod,version=v2}", "{env=test,version=v2}")
	var patches []string
	for patch := range 6 {
		patches = append(patches, fmt.Sprintf("{xds.version.patch=%d}", patch))
	}
	negotiation := []row{
		// The text's client constrains "xds.version.minor" while the server's variants have
		// "xds.version.patch": a key that no variant has does not keep it from any of them.
		{on(upTo("xds.version.minor", 5)), []string{patches[5], patches[4]}, Choice{Index: 1, Rival: 0, Matching: 2}},
	}
	for supported := range 8 { // read with one key, it gets the newest version that it supports
		best := min(supported, 5)
		negotiation = append(negotiation, row{on(upTo("xds.version.patch", supported)), patches, Choice{Index: best, Rival: -1, Matching: best + 1}})
	}
	nine := []string{
		"{env=canary,version=v2}", "{env=test,version=v2}", "{env=canary,version=v3}", "{env=test,version=v3}",
		"{env=prod,version=v2}", "{env=prod,version=v3}",
		"{env=canary,version=v1}", "{env=test,version=v1}",
		"{env=prod,version=v1}"}
	var routes []row
	for i, variant := range nine { // each is the one of a client
		values := parameters(t, variant).Map()
		routes = append(routes, row{on(is("env", values["env"]), is("version", values["version"])), nine, only(i)})
	}
	four := []string{"{env=NOT_prod,version=NOT_v1}", "{env=prod,version=NOT_v1}", "{env=NOT_prod,version=v1}", "{env=prod,version=v1}"}

	for heading, rows := range map[string][]row{
		"Matching Ambiguity, before the new key": {{prod, envs, only(0)}, {on(is("env", "test")), envs, only(1)}},
		// "allowing the set of constraints for a given key to match any resource variant that
		// does not specify that key at all"
		"Matching Ambiguity, new key on clients first": {{prodV1, envs, only(0)}},
		// "if the new key is added on the server side first", a client that does not know it
		// matches several variants
		"Matching Ambiguity, new key on server first": {{prod,
			[]string{"{env=prod,version=v1}", "{env=prod,version=v2}", "{env=test,version=v1}", "{env=test,version=v2}"}, Choice{Index: 0, Rival: 1, Matching: 2}}},
		// "These constraints can match either of the above variants"
		"Matching Ambiguity, variants with different keys": {{prodV1, []string{"{env=prod}", "{env=prod,version=v1}"}, Choice{Index: 1, Rival: 0, Matching: 2}}},
		// At no step is a client without a variant, and none has more than one to choose from.
		"Matching Ambiguity, expected order of changes": {
			{prod, envs, only(0)},
			{prodV1, envs, only(0)},   // 1: clients start sending version=v1
			{prodV1, inV1, only(0)},   // 2: version=v1 is added to all resources
			{prodV1, inBoth, only(0)}, // 3: variants with version=v2 are created
			{prodV2, inBoth, only(2)}, // 4: some clients send version=v2 instead
		},
		// "the largest possible matching value is preferred"
		"Matching Behavior and Best Practices": {{on(upTo("shard", 5)),
			[]string{"{shard=3}", "{shard=10}", "{shard=5}", "{shard=6}", "{shard=x}"}, Choice{Index: 2, Rival: -1, Matching: 2}}},
		"xDS Minor/Patch Version Negotiation":    negotiation,
		"Dynamic Route Selection, nine variants": routes,
		"Dynamic Route Selection, four variants": {
			{on(isNot("env", "prod"), isNot("version", "v1")), four, only(0)},
			{on(is("env", "prod"), isNot("version", "v1")), four, only(1)},
			{on(isNot("env", "prod"), is("version", "v1")), four, only(2)},
			{prodV1, four, only(3)},
		},
	} {
		t.Run(heading, func(t *testing.T) {
			t.Parallel()
			for _, row := range rows {
				if diff := cmp.Diff(row.then, constraints(t, row.client).Choose(variants(t, row.server...))); diff != "" {
					t.Errorf("%s among %v (-want +got):\n%s", row.client, row.server, diff)
				}
			}
		})
	}
}

// "Sharding Clusters", "For CDS (glob collection)": all clusters whose shard is in one
// of the ranges.
func TestShardingClustersGlobCollection(t *testing.T) {
	t.Parallel()
	c := constraints(t, `{key_constraints:[
		{key:"shards" value:{constraints:[
			{integer_range_list:{
				range:{min_value:4 max_value:6}
				range:{min_value:11 max_value:15}
				range:{min_value:46 max_value:90}
			}}
		]}}
	]}`)
	for shard := range uint64(100) {
		want := 4 <= shard && shard <= 6 || 11 <= shard && shard <= 15 || 46 <= shard && shard <= 90
		if got := c.Match(parameters(t, fmt.Sprintf("{shards=%d}", shard))); got != want {
			t.Errorf("shard %d matches: %t, want %t", shard, got, want)
		}
	}
}

// "Sharding Clusters", "For SRDS (single resource)": the ranges are one exact value.
func TestShardingClustersSingleResource(t *testing.T) {
	t.Parallel()
	c := constraints(t, on(is("shards", "[4-6],[11-15],[46-90]")))
	for value, want := range map[string]bool{"[4-6],[11-15],[46-90]": true, "[4-6],[11-15]": false, "4": false} {
		if got := c.Match(must(NewParameters(map[string]string{"shards": value}))); got != want {
			t.Errorf("shards %q match: %t, want %t", value, got, want)
		}
	}
}

// The examples of TP2 with constraints from a DPDS resource, which are those for one type.
func TestExamplesOfDPDS(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		heading, resourceType, key string
		values                     []string // each client's, and the server's variants
	}{
		{"DPDS Example", "envoy.config.listener.v3.Listener", "listener_type", []string{"direct", "via_proxy"}},
		{"Sharding Endpoints", "envoy.config.cluster.v3.ClusterLoadAssignment", "subset_id", []string{"123", "456", "0123"}},
		{"Selecting Cluster Based on ACL", "envoy.config.cluster.v3.RouteConfiguration", "use_proxy", []string{"true", "false"}},
	} {
		var server []Parameters
		for _, value := range test.values {
			server = append(server, parameters(t, "{"+test.key+"="+value+"}"))
		}
		for i, value := range test.values {
			m, want := new(dynamicparametersv3.DynamicParameterConstraintsMap), on(is(test.key, value))
			if err := prototext.Unmarshal(fmt.Appendf(nil, "resource_type_constraints:[{key:%q value:%s}]", test.resourceType, want), m); err != nil {
				t.Fatal(err)
			}
			byType := must(ByTypeFromProto(m))
			for _, name := range []string{test.resourceType, "type.googleapis.com/" + test.resourceType} {
				if got := byType.For(name); !got.Equal(constraints(t, want)) {
					t.Errorf("%s: the constraints for %s are %v, want %s", test.heading, name, got, want)
				}
			}
			if diff := cmp.Diff(Choice{Index: i, Rival: -1, Matching: 1}, byType.For(test.resourceType).Choose(server)); diff != "" {
				t.Errorf("%s: a client with %s (-want +got):\n%s", test.heading, value, diff)
			}
			if other := byType.For("type.googleapis.com/envoy.config.cluster.v3.Cluster"); !other.IsZero() {
				t.Errorf("%s: clusters are constrained: %v", test.heading, other)
			}
		}
	}
}
