package xdsresource

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/dynxds/dynxds/internal/dynwire"
	"github.com/dynxds/dynxds/internal/faults"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdsname"
	"github.com/dynxds/dynxds/internal/xdstest"
	discoverypb "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	dynparamspb "github.com/dynxds/dynxds/proto/dynxds/dynamic_parameters/v3"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

var allTypes = []*xdsclient.ResourceType{ListenerType, RouteConfigurationType, ClusterType, EndpointsType}

// The xDS protocol documentation, "Deleting Resources": only Listener and Cluster responses carry the full state.
func TestFullStateInSotW(t *testing.T) {
	t.Parallel()
	for _, rt := range allTypes {
		xdstest.Equal(t, rt.Name, rt == ListenerType || rt == ClusterType, rt.FullStateInSotW)
	}
}

func TestDecodeRejectsAnotherType(t *testing.T) {
	t.Parallel()
	for _, rt := range allTypes {
		for what, resource := range map[string]*anypb.Any{
			"other": {TypeUrl: "type.googleapis.com/envoy.api.v2.Listener"},
			"none":  {},
			"nil":   nil,
		} {
			xdstest.Parallel(t, rt.Name+"/"+what, func(t *testing.T) {
				value, err := rt.Decode(resource, xdsclient.DecodeOptions{})
				want := `has type "` + resource.GetTypeUrl() + `", want "` + rt.TypeURL + `"`
				if value != nil || err == nil || err.Error() != want {
					t.Errorf("Decode = %v, %v; want no value, %q", value, err, want)
				}
			})
		}
	}
}

func TestNameOfAMalformedResource(t *testing.T) {
	t.Parallel()
	name := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "the-name")
	for _, tc := range []struct {
		given string
		bytes []byte
		want  string
	}{
		{"a name and then rubbish", append(name[:len(name):len(name)], 0xff), "the-name"},
		{"a field before the name, rubbish after", append(append([]byte{0x78, 0x01}, name...), 0xff), "the-name"},
		{"rubbish before the name", append([]byte{0xff}, name...), ""},
		{"a name that is not UTF-8", []byte{0x0a, 0x01, 0xff}, ""},
		{"a name that ends early", []byte{0x0a, 0x05, 'a'}, ""},
		{"a name that is not a string", []byte{0x08, 0x01, 0xff}, ""},
	} {
		for _, rt := range allTypes {
			xdstest.Parallel(t, rt.Name+"/"+tc.given, func(t *testing.T) {
				xdstest.Equal(t, "name", tc.want, string(rt.NameOf(tc.bytes)))
				value, err := rt.Decode(&anypb.Any{TypeUrl: rt.TypeURL, Value: tc.bytes}, xdsclient.DecodeOptions{})
				if value != nil {
					t.Errorf("Decode = %v; want no value", value)
				}
				if err == nil || !strings.HasPrefix(err.Error(), "cannot be read as envoy.config.") {
					t.Errorf("Decode error = %v, want one that says it cannot be read", err)
				}
			})
		}
	}
}

func TestDuration(t *testing.T) {
	t.Parallel()
	at := faults.Field("d")
	for _, tc := range []struct {
		given string
		pb    *durationpb.Duration
		want  time.Duration
		fault string
	}{
		{given: "unset"},
		{given: "zero", pb: &durationpb.Duration{}},
		{given: "1.5 s", pb: &durationpb.Duration{Seconds: 1, Nanos: 5e8}, want: 1500 * time.Millisecond},
		{given: "longer than Go can hold", pb: &durationpb.Duration{Seconds: 3e11}, want: 1<<63 - 1},
		{given: "negative", pb: &durationpb.Duration{Seconds: -1}, fault: "d: is negative: -1s"},
		{given: "too many nanos", pb: &durationpb.Duration{Nanos: 1e9}, fault: "d: is not a valid duration: seconds: 0, nanos: 1000000000"},
		{given: "mixed signs", pb: &durationpb.Duration{Seconds: 1, Nanos: -1}, fault: "d: is not a valid duration: seconds: 1, nanos: -1"},
		{given: "over 10,000 years", pb: &durationpb.Duration{Seconds: 4e11}, fault: "d: is not a valid duration: seconds: 400000000000, nanos: 0"},
	} {
		xdstest.Parallel(t, tc.given, func(t *testing.T) {
			v := new(validator)
			got := v.duration(at, tc.pb)
			fault := ""
			if v.failed() {
				fault = v.faults.Error()
			}
			if got != tc.want || fault != tc.fault {
				t.Errorf("duration = %v, fault %q; want %v, fault %q", got, fault, tc.want, tc.fault)
			}
		})
	}
}

// dpds packs constraints on one key of one type.
func dpds(t testing.TB, typeName string, constraints ...*discoverypb.DynamicParameterConstraints_KeyConstraints_Constraint) *anypb.Any {
	t.Helper()
	a, err := dynwire.MarshalMap(&dynparamspb.DynamicParameterConstraintsMap{
		ResourceTypeConstraints: map[string]*discoverypb.DynamicParameterConstraints{
			typeName: {KeyConstraints: map[string]*discoverypb.DynamicParameterConstraints_KeyConstraints{
				"listener_type": {Constraints: constraints},
			}},
		},
	})
	xdstest.NoError(t, err)
	return a
}

func direct() *discoverypb.DynamicParameterConstraints_KeyConstraints_Constraint {
	return &discoverypb.DynamicParameterConstraints_KeyConstraints_Constraint{
		Constraint: &discoverypb.DynamicParameterConstraints_KeyConstraints_Constraint_Value{Value: "direct"},
	}
}

// TP2, "Server-Specified Constraints". Constraints for a type that is no resource type choose nothing: they are ignored, and listed as such. TP2's own
// text has two of them ("Sharding Endpoints" and "Selecting Cluster Based on ACL").
func TestDynamicParameterConstraintsMap(t *testing.T) {
	t.Parallel()
	const list = `resource_type_constraints["`
	for name, want := range map[string][2]string{ // the constraints and what is ignored, or the error
		"envoy.config.listener.v3.Listener": {"{listener_type=direct}", ""},
		"acme.v1.Thing": {"{listener_type=direct}", list + `acme.v1.Thing"]: found "acme.v1.Thing", which is no resource type of xDS: ` +
			`the constraints only apply if the program watches it with an xdsclient.ResourceType of its own`},
		"envoy.config.cluster.v3.RouteConfiguration": {"{listener_type=direct}", list + `envoy.config.cluster.v3.RouteConfiguration"]: ` +
			`found "envoy.config.cluster.v3.RouteConfiguration", which is the type of no resource; did you mean "envoy.config.route.v3.RouteConfiguration"?`},
		xdsname.ConstraintsMap: {"{listener_type=direct}", list + xdsname.ConstraintsMap + `"]: found "` + xdsname.ConstraintsMap +
			`", which is asked for without constraints (xRFC TP2, "Non-Cacheability of DPDS")`},
		"*": {`dynamic parameter constraints map: ` + list + `*"]: expected the name of a resource type such as "envoy.config.cluster.v3.Cluster", found "*"`, ""},
	} {
		resource := dpds(t, name, direct())
		value, err := DynamicParameterConstraintsType.Decode(resource, xdsclient.DecodeOptions{})
		if err != nil {
			xdstest.Equal(t, "error", want[0], err.Error())
			continue
		}
		m := value.(*DynamicParameterConstraintsMap)
		xdstest.Equal(t, "constraints", want[0], m.Constraints.For(name).String())
		xdstest.Equal(t, "for clusters", "{}", m.Constraints.For(typeurl.Cluster).String())
		ignored, err := IgnoredFields(resource)
		xdstest.NoError(t, err)
		xdstest.Equal(t, "ignored", m.Ignored, ignored)
		if want[1] != "" {
			xdstest.Equal(t, "ignored", []string{want[1]}, []string{ignored[0].String()})
			xdstest.Equal(t, "a warning", name != "acme.v1.Thing", ignored[0].Severity == xdsclient.SeverityWarning)
		}
		xdstest.Equal(t, "how many are ignored", len(DynamicParameterConstraintsType.Ignored(value)), len(ignored))
	}
}

func FuzzDynamicParameterConstraintsMap(f *testing.F) {
	f.Add(dpds(f, "envoy.config.listener.v3.Listener", direct()).Value)
	f.Fuzz(func(t *testing.T, b []byte) {
		value, err := DynamicParameterConstraintsType.Decode(
			&anypb.Any{TypeUrl: DynamicParameterConstraintsTypeURL, Value: b}, xdsclient.DecodeOptions{})
		if (value == nil) != (err != nil) {
			t.Fatalf("Decode = %v, %v: want either", value, err)
		}
		if err != nil {
			return
		}
		// What was accepted is accepted again in canonical form, and means the same.
		constraints := value.(*DynamicParameterConstraintsMap).Constraints
		again, err := dynparam.ByTypeFromProto(constraints.ToProto())
		if err != nil || !again.Equal(constraints) {
			t.Fatalf("%v became %v, %v", constraints.ToProto(), again.ToProto(), err)
		}
	})
}
