package rls

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// specifier is a RouteLookupClusterSpecifier with a config.
func specifier(t *testing.T, text string) *anypb.Any {
	t.Helper()
	typ, err := protoregistry.GlobalTypes.FindMessageByName("grpc.lookup.v1.RouteLookupClusterSpecifier")
	xdstest.NoError(t, err)
	m := typ.New().Interface()
	xdstest.NoError(t, prototext.Unmarshal([]byte(text), m))
	a, err := anypb.New(m)
	xdstest.NoError(t, err)
	return a
}

const (
	names   = `grpc_keybuilders{names{service:"s"}}`
	service = ` lookup_service:"dns:///rls:443"`
	size    = ` cache_size_bytes:1000 `
)

// rls_config.proto: "The service name is required", "must have unique name fields", "it is an error to specify required_match". gRPC's
// policy has the last word, as the plugin is for it.
func TestConfigIsValidated(t *testing.T) {
	t.Parallel()
	for given, tc := range map[string]struct{ config, fault string }{
		"a valid one":                   {names + service + size + ` default_target:"d"`, ""},
		"key builders with headers":     {`grpc_keybuilders{names{service:"s" method:"m"} headers{key:"k" names:"a" names:"b"} constant_keys{key:"c" value:"v"}}` + service + size, ""},
		"no key builder":                {service + size, "does not contain any GrpcKeyBuilder"},
		"a name without service":        {`grpc_keybuilders{names{}}` + service + size, "no Service"},
		"a name twice":                  {names + names + service + size, "s"},
		"a key builder without names":   {`grpc_keybuilders{}` + service + size, "Name"},
		"required_match":                {`grpc_keybuilders{names{service:"s"} headers{key:"k" names:"a" required_match:true}}` + service + size, "required_match"},
		"one key twice":                 {`grpc_keybuilders{names{service:"s"} headers{key:"k" names:"a"} constant_keys{key:"k" value:"v"}}` + service + size, "k"},
		"no lookup_service":             {names + size, "lookup_service"},
		"a lookup_service of no scheme": {names + size + `lookup_service:"nowhere://x"`, "lookup_service"},
		"stale_age without max_age":     {names + service + size + `stale_age{seconds:1}`, "stale_age"},
		"no cache_size_bytes":           {names + service, "cache_size_bytes"},
	} {
		xdstest.Parallel(t, given, func(t *testing.T) {
			policy, text, err := parse(specifier(t, "route_lookup_config{"+tc.config+"}"))
			switch {
			case tc.fault == "":
				xdstest.NoError(t, err)
				if policy != "rls_experimental" || !strings.Contains(text, `"childPolicy":[{"dynxds_target_experimental":{}}]`) {
					t.Errorf("policy %s with %s", policy, text)
				}
			case err == nil || !strings.Contains(err.Error(), tc.fault):
				t.Errorf("error %v, want %q", err, tc.fault)
			}
		})
	}
}

func TestWhatIsNoConfig(t *testing.T) {
	t.Parallel()
	if _, _, err := parse(specifier(t, "")); err == nil || !strings.Contains(err.Error(), "route_lookup_config must be set") {
		t.Errorf("without a config: %v", err)
	}
	broken := proto.CloneOf(specifier(t, ""))
	broken.Value = []byte{0xff}
	if _, _, err := parse(broken); err == nil || !strings.Contains(err.Error(), "cannot be read") {
		t.Errorf("malformed: %v", err)
	}
}

// The text of a config is the same each time, by which the balancer sees that nothing has changed.
func TestTextIsStable(t *testing.T) {
	t.Parallel()
	_, first, err := parse(specifier(t, "route_lookup_config{"+names+service+size+"}"))
	xdstest.NoError(t, err)
	if strings.Contains(first, " ") {
		t.Errorf("%s has spaces, which protojson varies", first)
	}
}
