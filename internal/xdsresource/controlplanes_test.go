package xdsresource

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/grpc_stats/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/http/stateful_session/cookie/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/priority/previous_priorities/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/raw_buffer/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/anypb"

	_ "github.com/dynxds/dynxds/httpfilter/builtin"
	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
	"github.com/dynxds/dynxds/xdsclient"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

// controlPlaneCase is a resource as a control plane writes it, and what becomes of it.
type controlPlaneCase struct {
	Name string `json:"name"`
	// Source is where the control plane's own code or tests have it. The resource is transcribed.
	Source string `json:"source"`
	// Providers says that the bootstrap has the certificate provider "default".
	Providers bool            `json:"providers,omitempty"`
	Resource  json.RawMessage `json:"resource"`
	// Refused is why the resource is rejected. Empty: it is accepted, and what this client does not
	// act on is in Ignored, with its severity.
	Refused []string `json:"refused,omitempty"`
	Ignored []string `json:"ignored,omitempty"`
}

// Istio, Kuma, Consul, Envoy Gateway and Traffic Director: what they send is accepted, with the
// fields that a gRPC client cannot act on reported; what asks for security that this client cannot
// give, or would send RPCs elsewhere, is refused with the reason (docs/reference/other-control-planes.md).
func TestWhatControlPlanesSend(t *testing.T) {
	files, err := filepath.Glob("testdata/controlplanes/*.json")
	xdstest.NoError(t, err)
	page, err := os.ReadFile("../../docs/reference/other-control-planes.md")
	xdstest.NoError(t, err)
	if len(files) < 6 {
		t.Fatalf("found %d files", len(files))
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		xdstest.NoError(t, err)
		var cases []controlPlaneCase
		xdstest.NoError(t, json.Unmarshal(text, &cases))
		for i := range cases {
			c := &cases[i]
			refused, ignored := outcomeOf(t, c)
			if golden.Updating() {
				c.Refused, c.Ignored = refused, ignored
				continue
			}
			t.Run(strings.TrimSuffix(filepath.Base(file), ".json")+": "+c.Name, func(t *testing.T) {
				xdstest.Equal(t, "refused", c.Refused, refused)
				xdstest.Equal(t, "ignored", c.Ignored, ignored)
				for _, i := range ignored {
					if name := fieldIn(i); !bytes.Contains(page, []byte("`"+name+"`")) {
						t.Errorf("the page does not have %s, which is ignored: %s", name, i)
					}
				}
			})
		}
		if golden.Updating() {
			writeCases(t, file, cases)
		}
	}
}

// fieldIn returns the name of the field in a line of what is ignored: `severity path: reason`.
func fieldIn(line string) string {
	_, line, _ = strings.Cut(line, " ")
	path, _, _ := strings.Cut(line, ": ")
	path, _, _ = strings.Cut(path, `["`) // the key of a map
	path = strings.TrimSuffix(path, ".filter_metadata")
	path = strings.TrimSuffix(path, ".typed_config")
	field, _, _ := strings.Cut(path[strings.LastIndexByte(path, '.')+1:], "[")
	return field
}

// outcomeOf decodes a resource.
func outcomeOf(t *testing.T, c *controlPlaneCase) (refused, ignored []string) {
	t.Helper()
	resource := new(anypb.Any)
	if err := (protojson.UnmarshalOptions{Resolver: anyType{protoregistry.GlobalTypes}}).Unmarshal(c.Resource, resource); err != nil {
		t.Fatalf("%s: %v", c.Name, err)
	}
	providers := `{}`
	if c.Providers {
		providers = `{"default": {"plugin_name": "file_watcher", "config": {"certificate_file": "a", "private_key_file": "b", "ca_certificate_file": "c"}}}`
	}
	config, err := bootstrap.Parse("test", []byte(`{"xds_servers": [{"server_uri": "a", "channel_creds": [{"type": "insecure"}]}], "certificate_providers": `+providers+`}`))
	xdstest.NoError(t, err)
	for _, rt := range []*xdsclient.ResourceType{ListenerType, RouteConfigurationType, ClusterType, EndpointsType} {
		if rt.TypeURL != resource.GetTypeUrl() {
			continue
		}
		value, err := rt.Decode(resource, xdsclient.DecodeOptions{Bootstrap: config})
		if rt.NameOf(resource.GetValue()) == nil {
			t.Errorf("%s has no name", c.Name)
		}
		if err != nil {
			var found *Faults
			if !errors.As(err, &found) {
				t.Errorf("%s: %v", c.Name, err)
			}
			for _, f := range found.List {
				refused = append(refused, f.String())
			}
			return refused, nil
		}
		for _, i := range rt.Ignored(value) {
			ignored = append(ignored, i.Severity.String()+" "+i.String())
		}
		return nil, ignored
	}
	t.Fatalf("%s: %s is no resource type", c.Name, typeurl.Name(resource.GetTypeUrl()))
	return nil, nil
}

// writeCases writes cases with a resource to a line.
func writeCases(t *testing.T, file string, cases []controlPlaneCase) {
	t.Helper()
	var b bytes.Buffer
	for i, c := range cases {
		b.WriteString(map[bool]string{true: "[\n", false: ",\n"}[i == 0])
		text, err := json.MarshalIndent(c, "", " ")
		xdstest.NoError(t, err)
		var resource bytes.Buffer
		xdstest.NoError(t, json.Compact(&resource, c.Resource))
		before, _, _ := bytes.Cut(text, []byte(`"resource": `))
		_, after, _ := bytes.Cut(text, []byte("\n }"))
		b.Write(before)
		b.WriteString(`"resource": ` + resource.String())
		b.Write(after)
	}
	b.WriteString("\n]\n")
	xdstest.NoError(t, os.WriteFile(file, b.Bytes(), 0o644))
}

// anyType resolves every type: one that is not linked is a message without fields.
type anyType struct{ *protoregistry.Types }

func (r anyType) FindMessageByURL(url string) (protoreflect.MessageType, error) {
	if known, err := r.Types.FindMessageByURL(url); err == nil {
		return known, nil
	}
	full := protoreflect.FullName(typeurl.Name(url))
	pkg, name, file := string(full.Parent()), string(full.Name()), string(full)
	d, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: &file, Package: &pkg, MessageType: []*descriptorpb.DescriptorProto{{Name: &name}},
	}, nil)
	if err != nil {
		return nil, err
	}
	return dynamicpb.NewMessageType(d.Messages().Get(0)), nil
}
