//lint:file-ignore SA1019 Control planes still send the deprecated fields, and gRPC reads them.

package xdsresource

import (
	"errors"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

func mustAny(t testing.TB, m proto.Message) *anypb.Any {
	t.Helper()
	a, err := anypb.New(m)
	if err != nil {
		t.Fatalf("anypb.New(%T): %v", m, err)
	}
	return a
}

// mustDecode decodes a resource that has to be valid.
func mustDecode[T any](t testing.TB, rt *xdsclient.ResourceType, m proto.Message) *T {
	t.Helper()
	_, value, err := rt.Decode(mustAny(t, m), xdsclient.DecodeOptions{})
	if err != nil {
		t.Fatalf("Decode(%s) = %v, want no error", rt.Name, err)
	}
	return value.(*T)
}

var trusted = xdsclient.DecodeOptions{
	Server: &bootstrap.Server{Features: []bootstrap.Feature{bootstrap.FeatureTrustedXDSServer}},
}

// mustDecodeRoutes decodes a RouteConfiguration from a server that is trusted.
func mustDecodeRoutes(t testing.TB, config *routepb.RouteConfiguration) *RouteConfiguration {
	t.Helper()
	_, value, err := RouteConfigurationType.Decode(mustAny(t, config), trusted)
	if err != nil {
		t.Fatalf("Decode = %v, want no error", err)
	}
	return value.(*RouteConfiguration)
}

// note is what a resource is said to go without: the field and the reason.
type note struct{ Path, Reason string }

// checkIgnored compares what was left out of a resource.
func checkIgnored(t *testing.T, got []xdsclient.Ignored, want ...note) {
	t.Helper()
	notes := make([]note, len(got))
	for i, part := range got {
		notes[i] = note{part.Path, part.Reason}
	}
	if diff := cmp.Diff(want, notes, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("Ignored (-want +got):\n%s", diff)
	}
}

// fault is one of Faults.
type fault struct{ Path, Problem string }

// decodeFaults decodes a resource and returns what is wrong with it.
func decodeFaults(t testing.TB, rt *xdsclient.ResourceType, m proto.Message, options ...xdsclient.DecodeOptions) []fault {
	t.Helper()
	_, value, err := rt.Decode(mustAny(t, m), append(options, xdsclient.DecodeOptions{})[0])
	if err == nil {
		return nil
	}
	if value != nil {
		t.Errorf("Decode(%s) returned the value %v beside an error", rt.Name, value)
	}
	var faults *Faults
	if !errors.As(err, &faults) {
		t.Fatalf("Decode(%s) error has type %T, want *Faults", rt.Name, err)
	}
	list := make([]fault, len(faults.List))
	for i, f := range faults.List {
		if list[i] = (fault{f.Path, f.Problem}); f.String() != f.Path+": "+f.Problem && f.String() != f.Problem {
			t.Errorf("the fault is %q, with more than a path and a problem", f)
		}
	}
	return list
}

// checkFaults decodes a resource and compares what is wrong with it.
func checkFaults(t *testing.T, rt *xdsclient.ResourceType, m proto.Message, want []fault) {
	t.Helper()
	if diff := cmp.Diff(want, decodeFaults(t, rt, m)); diff != "" {
		t.Errorf("faults differ (-want +got):\n%s", diff)
	}
}

// faultTest is a resource and what is wrong with it.
type faultTest struct {
	given    string
	resource proto.Message
	want     []fault
}

// checkAllFaults is checkFaults for each of the tests.
func checkAllFaults(t *testing.T, rt *xdsclient.ResourceType, tests []faultTest) {
	t.Helper()
	for _, tc := range tests {
		t.Run(tc.given, func(t *testing.T) {
			t.Parallel()
			checkFaults(t, rt, tc.resource, tc.want)
		})
	}
}

func ads() *corepb.ConfigSource {
	return &corepb.ConfigSource{ConfigSourceSpecifier: &corepb.ConfigSource_Ads{}}
}

func self() *corepb.ConfigSource {
	return &corepb.ConfigSource{ConfigSourceSpecifier: &corepb.ConfigSource_Self{}}
}

func filePath() *corepb.ConfigSource {
	return &corepb.ConfigSource{ConfigSourceSpecifier: &corepb.ConfigSource_Path{Path: "/etc/x"}}
}
