package dynparam

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/prototext"

	dynamicparametersv3 "github.com/dynxds/dynxds/proto/dynxds/dynamic_parameters/v3"
)

// The worked examples of TP2, each under the heading that it has there. (Where the
// text puts a list of ranges in brackets that the message does not have, they are
// left out.)

const (
	prod   = `{key_constraints:[{key:"env" value:{constraints:[{value:"prod"}]}}]}`
	prodV1 = `{key_constraints:[
		{key:"env" value:{constraints:[{value:"prod"}]}},
		{key:"version" value:{constraints:[{value:"v1"}]}}]}`
)

// matching returns the variants that the constraints accept.
func matching(c Constraints, all []Parameters) []string {
	found := []string{}
	for _, p := range all {
		if c.Match(p) {
			found = append(found, p.String())
		}
	}
	return found
}

// "Matching Ambiguity": the two clients of the example, before the new key.
func TestMatchingAmbiguityOneKey(t *testing.T) {
	t.Parallel()
	server := variants(t, "{env=prod}", "{env=test}")
	for _, env := range []string{"prod", "test"} {
		c := constraints(t, `{key_constraints:[{key:"env" value:{constraints:[{value:"`+env+`"}]}}]}`)
		if diff := cmp.Diff([]string{"{env=" + env + "}"}, matching(c, server)); diff != "" {
			t.Errorf("a %s client (-want +got):\n%s", env, diff)
		}
	}
}

// "Matching Ambiguity": "allowing the set of constraints for a given key to match any
// resource variant that does not specify that key at all".
func TestMatchingAmbiguityNewKeyOnClientsFirst(t *testing.T) {
	t.Parallel()
	got := constraints(t, prodV1).Choose(variants(t, "{env=prod}", "{env=test}"))
	if diff := cmp.Diff(Choice{Index: 0, Rival: -1, Matching: 1}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// "Matching Ambiguity": "if the new key is added on the server side first", a client
// that does not know it matches several variants.
func TestMatchingAmbiguityNewKeyOnServerFirst(t *testing.T) {
	t.Parallel()
	server := variants(t, "{env=prod,version=v1}", "{env=prod,version=v2}", "{env=test,version=v1}", "{env=test,version=v2}")
	got := constraints(t, prod).Choose(server)
	if diff := cmp.Diff(Choice{Index: 0, Rival: 1, Matching: 2}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// "Matching Ambiguity": "These constraints can match either of the above variants".
func TestMatchingAmbiguityVariantsWithDifferentKeys(t *testing.T) {
	t.Parallel()
	got := constraints(t, prodV1).Choose(variants(t, "{env=prod}", "{env=prod,version=v1}"))
	if diff := cmp.Diff(Choice{Index: 1, Rival: 0, Matching: 2}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// "Matching Ambiguity": "the expected order of changes". At no step is a client
// without a variant, and none has more than one to choose from.
func TestMatchingAmbiguityExpectedOrderOfChanges(t *testing.T) {
	t.Parallel()
	version := func(v string) string {
		return `{key_constraints:[
			{key:"env" value:{constraints:[{value:"prod"}]}},
			{key:"version" value:{constraints:[{value:"` + v + `"}]}}]}`
	}
	before, v1, both := []string{"{env=prod}", "{env=test}"}, []string{"{env=prod,version=v1}", "{env=test,version=v1}"},
		[]string{"{env=prod,version=v1}", "{env=test,version=v1}", "{env=prod,version=v2}", "{env=test,version=v2}"}
	steps := []struct {
		given, client string
		server        []string
		then          string
	}{
		{"before", prod, before, "{env=prod}"},
		{"1: clients start sending version=v1", version("v1"), before, "{env=prod}"},
		{"2: version=v1 is added to all resources", version("v1"), v1, "{env=prod,version=v1}"},
		{"3: variants with version=v2 are created", version("v1"), both, "{env=prod,version=v1}"},
		{"4: some clients send version=v2 instead", version("v2"), both, "{env=prod,version=v2}"},
		{"4: the others still send version=v1", version("v1"), both, "{env=prod,version=v1}"},
	}
	for _, step := range steps {
		server := variants(t, step.server...)
		got := constraints(t, step.client).Choose(server)
		if got.Index < 0 || got.Ambiguous() {
			t.Errorf("step %s: the choice is %+v", step.given, got)
		} else if diff := cmp.Diff(step.then, server[got.Index].String()); diff != "" {
			t.Errorf("step %s (-want +got):\n%s", step.given, diff)
		}
	}
}

// "Matching Behavior and Best Practices": "the largest possible matching value is
// preferred".
func TestBestPracticesLargestValueIsPreferred(t *testing.T) {
	t.Parallel()
	c := constraints(t, `{key_constraints:[
		{key:"shard" value:{constraints:[
			{integer_range_list:{range:[{min_value:0 max_value:5}]}}
		]}}
	]}`)
	got := c.Choose(variants(t, "{shard=3}", "{shard=10}", "{shard=5}", "{shard=6}", "{shard=x}"))
	if diff := cmp.Diff(Choice{Index: 2, Rival: -1, Matching: 2}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// "xDS Minor/Patch Version Negotiation". The text's client constrains
// "xds.version.minor" while the server's variants have "xds.version.patch"; read with
// one key, a client gets the variant of the newest version that it supports.
func TestVersionNegotiation(t *testing.T) {
	t.Parallel()
	server := []Parameters{}
	for patch := range 6 {
		server = append(server, parameters(t, fmt.Sprintf("{xds.version.patch=%d}", patch)))
	}
	for supported := range 8 {
		c := constraints(t, fmt.Sprintf(`{key_constraints:[
			{key:"xds.version.patch" value:{constraints:[
				{integer_range_list:{range:{min_value:0 max_value:%d}}}
			]}}
		]}`, supported))
		want := Choice{Index: min(supported, 5), Rival: -1, Matching: min(supported, 5) + 1}
		if diff := cmp.Diff(want, c.Choose(server)); diff != "" {
			t.Errorf("a client of 3.0.%d (-want +got):\n%s", supported, diff)
		}
	}
}

// The same heading, as it is written: a key of the client's that no variant has does
// not keep it from any of them.
func TestVersionNegotiationAsWritten(t *testing.T) {
	t.Parallel()
	c := constraints(t, `{key_constraints:[
		{key:"xds.version.minor" value:{constraints:[
			{integer_range_list:{range:{min_value:0 max_value:5}}}
		]}}
	]}`)
	got := c.Choose(variants(t, "{xds.version.patch=5}", "{xds.version.patch=4}"))
	if diff := cmp.Diff(Choice{Index: 1, Rival: 0, Matching: 2}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
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
	c := constraints(t, `{key_constraints:[{key:"shards" value:{constraints:[{value:"[4-6],[11-15],[46-90]"}]}}]}`)
	for value, want := range map[string]bool{"[4-6],[11-15],[46-90]": true, "[4-6],[11-15]": false, "4": false} {
		if got := c.Match(must(NewParameters(map[string]string{"shards": value}))); got != want {
			t.Errorf("shards %q match: %t, want %t", value, got, want)
		}
	}
}

// dpds returns the constraints in a DPDS resource in text form.
func dpds(t *testing.T, text string) ByType {
	t.Helper()
	m := new(dynamicparametersv3.DynamicParameterConstraintsMap)
	if err := prototext.Unmarshal([]byte(text), m); err != nil {
		t.Fatal(err)
	}
	return must(ByTypeFromProto(m))
}

// "DPDS Example": the constraints for Listeners, and their change.
func TestDPDSExample(t *testing.T) {
	t.Parallel()
	const lds = "type.googleapis.com/envoy.config.listener.v3.Listener"
	server := variants(t, "{listener_type=direct}", "{listener_type=via_proxy}")
	for i, listener := range []string{"direct", "via_proxy"} {
		given := dpds(t, `resource_type_constraints:[
			{key:"envoy.config.listener.v3.Listener" value:{
				key_constraints:[
					{key:"listener_type" value:{
						constraints:[{value:"`+listener+`"}]
					}}
				]
			}}
		]`)
		want := constraints(t, `{key_constraints:[{key:"listener_type" value:{constraints:[{value:"`+listener+`"}]}}]}`)
		if got := given.For(lds); !got.Equal(want) {
			t.Errorf("the constraints are %v, want %v", got, want)
		}
		if diff := cmp.Diff(Choice{Index: i, Rival: -1, Matching: 1}, given.For(lds).Choose(server)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if other := given.For("type.googleapis.com/envoy.config.cluster.v3.Cluster"); !other.IsZero() {
			t.Errorf("clusters are constrained: %v", other)
		}
	}
}

// "Sharding Endpoints": each client's subset is a variant.
func TestShardingEndpoints(t *testing.T) {
	t.Parallel()
	c := dpds(t, `resource_type_constraints:[
		{key:"envoy.config.cluster.v3.ClusterLoadAssignment" value:{
			key_constraints:[
				{key:"subset_id" value:{
					constraints:[{value:"123"}]
				}}
			]
		}}
	]`).For("envoy.config.cluster.v3.ClusterLoadAssignment")
	got := matching(c, variants(t, "{subset_id=123}", "{subset_id=456}", "{subset_id=0123}"))
	if diff := cmp.Diff([]string{"{subset_id=123}"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// "Selecting Cluster Based on ACL": the server sets use_proxy for each client.
func TestSelectingClusterBasedOnACL(t *testing.T) {
	t.Parallel()
	server := variants(t, "{use_proxy=true}", "{use_proxy=false}")
	for i, useProxy := range []string{"true", "false"} {
		c := dpds(t, `resource_type_constraints:[
			{key: "envoy.config.cluster.v3.RouteConfiguration" value:{
				key_constraints:[
					{key:"use_proxy" value:{
						constraints:[{value:"`+useProxy+`"}]
					}}
				]
			}}
		]`).For("type.googleapis.com/envoy.config.cluster.v3.RouteConfiguration")
		if diff := cmp.Diff(Choice{Index: i, Rival: -1, Matching: 1}, c.Choose(server)); diff != "" {
			t.Errorf("use_proxy=%s (-want +got):\n%s", useProxy, diff)
		}
	}
}

var (
	envs     = []string{"prod", "canary", "test"}
	versions = []string{"v1", "v2", "v3"}
)

// "Dynamic Route Selection": nine variants, one for each client.
func TestDynamicRouteSelectionNineVariants(t *testing.T) {
	t.Parallel()
	server := variants(t,
		"{env=canary,version=v2}", "{env=test,version=v2}", "{env=canary,version=v3}", "{env=test,version=v3}",
		"{env=prod,version=v2}", "{env=prod,version=v3}",
		"{env=canary,version=v1}", "{env=test,version=v1}",
		"{env=prod,version=v1}")
	for _, env := range envs {
		for _, version := range versions {
			got := matching(exact("env", env, "version", version), server)
			if diff := cmp.Diff([]string{"{env=" + env + ",version=" + version + "}"}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		}
	}
}

// "Dynamic Route Selection": four variants, with constraints from DPDS that invert.
func TestDynamicRouteSelectionFourVariants(t *testing.T) {
	t.Parallel()
	const (
		notProd = `{key:"env" value{constraints:[{value:"prod"}] invert:true}}`
		isProd  = `{key:"env" value{constraints:[{value:"prod"}]}}`
		notV1   = `{key:"version" value:{constraints:[{value:"v1"}] invert:true}}`
		isV1    = `{key:"version" value:{constraints:[{value:"v1"}]}}`
	)
	table := []struct{ env, version, then string }{
		{notProd, notV1, "{env=NOT_prod,version=NOT_v1}"},
		{isProd, notV1, "{env=prod,version=NOT_v1}"},
		{notProd, isV1, "{env=NOT_prod,version=v1}"},
		{isProd, isV1, "{env=prod,version=v1}"},
	}
	server := []Parameters{}
	for _, row := range table {
		server = append(server, parameters(t, row.then))
	}
	for _, row := range table {
		c := constraints(t, "{key_constraints:["+row.env+","+row.version+"]}")
		if diff := cmp.Diff([]string{row.then}, matching(c, server)); diff != "" {
			t.Errorf("%v (-want +got):\n%s", c, diff)
		}
		if choice := c.Choose(server); choice.Ambiguous() {
			t.Errorf("%v is ambiguous: %+v", c, choice)
		}
	}
}
