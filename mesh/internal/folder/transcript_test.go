package folder_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
	"github.com/dynxds/dynxds/mesh/internal/folder"
)

// TestTranscripts reads documents. The cases in testdata/transcripts are followed by errors, or by what they are: what services say of their
// Clusters, routes, endpoints, filters and TLS, policies, and resources. In sections "… of a Service" the input is behind the first two lines of one.
func TestTranscripts(t *testing.T) {
	t.Parallel()
	golden.Cases(t, "testdata/transcripts/*.txt", func(section, input string) string {
		if strings.HasSuffix(section, " of a Service") {
			input = frontend + input
		}
		c, err := new(folder.Parser).Parse(map[string]string{"f": input + "\n"})
		if err != nil {
			return err.Error()
		}
		var said strings.Builder
		for _, s := range c.Services {
			fmt.Fprintf(&said, "Cluster %s\nRouteAction %s\n", textOf(t, s.Cluster), textOf(t, s.Route))
			for _, e := range s.Endpoints {
				fmt.Fprintf(&said, "Endpoint %+v\n", e)
			}
			for _, f := range s.Filters {
				fmt.Fprintf(&said, "Filter at %v %s\n", s.FiltersSource, textOf(t, f))
			}
			if s.TLS == nil {
				continue
			}
			fmt.Fprintf(&said, "TLS mode %d, identity %q, roots %q, SNI %q at %v\n", s.TLS.Mode, s.TLS.Identity, s.TLS.Roots, s.TLS.SNI, s.TLS.Source)
			for _, san := range s.TLS.SANs {
				fmt.Fprintf(&said, "SAN %s\n", textOf(t, san))
			}
		}
		for _, p := range c.Policies {
			fmt.Fprintf(&said, "Policy %s at %v\n", p.Name, p.Source)
		}
		for _, r := range c.Resources {
			fmt.Fprintf(&said, "Resource %s %v %s\n", r.Name, r.Parameters, textOf(t, r.Any))
		}
		return said.String()
	})
}

// textOf returns a message as JSON, in the order of the keys.
func textOf(t *testing.T, m proto.Message) string {
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	xdstest.NoError(t, err)
	var value any
	xdstest.NoError(t, json.Unmarshal(text, &value))
	text, err = json.Marshal(value)
	xdstest.NoError(t, err)
	return string(text)
}
