//lint:file-ignore SA1019 Control planes still send the deprecated fields, and gRPC reads them.

package xdsresource

import (
	"errors"
	"testing"

	corepb "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// mustDecode decodes a resource that has to be valid.
func mustDecode[T any](t testing.TB, rt *xdsclient.ResourceType, m proto.Message) *T {
	t.Helper()
	_, value, err := rt.Decode(xdsmsg.Any(m), xdsclient.DecodeOptions{})
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
	_, value, err := RouteConfigurationType.Decode(xdsmsg.Any(config), trusted)
	if err != nil {
		t.Fatalf("Decode = %v, want no error", err)
	}
	return value.(*RouteConfiguration)
}

// note is an ignored field and the reason.
type note struct{ Path, Reason string }

// checkIgnored compares the ignored fields of a resource.
func checkIgnored(t *testing.T, got []xdsclient.Ignored, want ...note) {
	t.Helper()
	notes := make([]note, len(got))
	for i, part := range got {
		notes[i] = note{part.Path, part.Reason}
	}
	xdstest.Equal(t, "Ignored", want, notes, cmpopts.EquateEmpty())
}

// fault is one of Faults.
type fault struct{ Path, Problem string }

// decodeFaults decodes a resource and returns its faults.
func decodeFaults(t testing.TB, rt *xdsclient.ResourceType, m proto.Message, options ...xdsclient.DecodeOptions) []fault {
	t.Helper()
	_, value, err := rt.Decode(xdsmsg.Any(m), append(options, xdsclient.DecodeOptions{})[0])
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

// checkFaults decodes a resource and compares its faults.
func checkFaults(t *testing.T, rt *xdsclient.ResourceType, m proto.Message, want []fault) {
	t.Helper()
	xdstest.Equal(t, "faults", want, decodeFaults(t, rt, m))
}

// row is a case of a table: an input and the wanted result.
type row[G, W any] struct {
	name  string
	given G
	want  W
}

type rows[G, W any] []row[G, W]

// checkEach runs a test for each row, which compares the result of got with the wanted one.
func checkEach[G, W any](t *testing.T, what string, got func(t *testing.T, given G) W, table rows[G, W]) {
	t.Helper()
	for _, r := range table {
		xdstest.Parallel(t, r.name, func(t *testing.T) {
			xdstest.Equal(t, what, r.want, got(t, r.given), cmpopts.IgnoreUnexported(Forward{}))
		})
	}
}

// faultTest is a resource and its faults.
type faultTest = row[proto.Message, []fault]

// checkAllFaults is checkFaults for each of the tests.
func checkAllFaults(t *testing.T, rt *xdsclient.ResourceType, tests []faultTest) {
	t.Helper()
	checkEach(t, "faults", func(t *testing.T, m proto.Message) []fault { return decodeFaults(t, rt, m) }, tests)
}

func self() *corepb.ConfigSource {
	return &corepb.ConfigSource{ConfigSourceSpecifier: &corepb.ConfigSource_Self{}}
}

func filePath() *corepb.ConfigSource {
	return &corepb.ConfigSource{ConfigSourceSpecifier: &corepb.ConfigSource_Path{Path: "/etc/x"}}
}
