package meshroute_test

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/dynxds/dynxds/internal/typeurl"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
	"github.com/dynxds/dynxds/mesh/internal/folder"
	"github.com/dynxds/dynxds/mesh/meshroute"
)

// TestTranscripts builds meshes of documents. A file of testdata/transcripts has sections, "== NAME", in which what is built of documents follows
// them behind "->": keys, reports, and resources, or what has changed since the mesh before in the section. The last document can have, under "services",
// meshroute.Services as they are. At the end of the name can be ": reports", which leaves out resources, ": names", which leaves out what they are, ":
// places", which has places in them, or "authority=NAME". Envoy and dynxds have to accept the resources.
func TestTranscripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/transcripts/*.txt")
	xdstest.NoError(t, err)
	for _, file := range files {
		var printed strings.Builder
		for section := range strings.SplitSeq(strings.TrimPrefix(golden.Read(t, file), "== "), "\n== ") {
			title, text, _ := strings.Cut(section, "\n")
			printed.WriteString("== " + title + "\n" + transcript(t, title, text))
		}
		golden.Check(t, file, printed.String())
	}
}

// output matches what is printed: lines behind "->", up to an empty one.
var output = regexp.MustCompile(`(?m)^->\n(.+\n)*`)

// transcript prints a section again.
func transcript(t *testing.T, title, text string) string {
	var printed strings.Builder
	var before *meshroute.Mesh
	_, authority, _ := strings.Cut(title, "authority=")
	for _, documents := range output.Split(strings.TrimRight(text, "\n")+"\n", -1) {
		documents = strings.Trim(documents, "\n")
		if documents == "" {
			continue
		}
		printed.WriteString(documents + "\n->\n")
		in := read(t, documents)
		in.Authority = authority
		if strings.HasSuffix(title, ": places") {
			in.SourceDir = "."
		}
		m, err := meshroute.Build(in, before)
		if err != nil {
			printed.WriteString(err.Error() + "\n\n")
			continue
		}
		if keys := m.Keys(); len(keys) > 0 {
			printed.WriteString("keys " + strings.Join(keys, " ") + "\n")
		}
		for _, r := range m.Reports() {
			printed.WriteString(r.String())
			if r.Clients != "" {
				printed.WriteString(" [" + r.Clients + "]")
			}
			printed.WriteString("\n")
		}
		changed, removed := m.Changes(before)
		for _, list := range [][]*meshroute.Resource{changed, removed} {
			slices.SortFunc(list, func(a, b *meshroute.Resource) int { return strings.Compare(titleOf(a), titleOf(b)) })
		}
		if before = m; strings.HasSuffix(title, ": reports") {
			changed, removed = nil, nil
		}
		for _, r := range changed {
			meshroute.CheckResource(t, r)
			printed.WriteString(titleOf(r))
			if !strings.HasSuffix(title, ": names") {
				printed.WriteString(" " + textOf(t, r))
			}
			printed.WriteString("\n")
		}
		for _, r := range removed {
			printed.WriteString("removed: " + titleOf(r) + "\n")
		}
		printed.WriteString("\n")
	}
	return printed.String()
}

// read reads documents.
func read(t *testing.T, documents string) (in meshroute.Input) {
	documents, values, isThere := strings.Cut(strings.ReplaceAll("\n"+documents, "LONG", strings.Repeat("a", 256)), "\nservices:")
	content, err := new(folder.Parser).Parse(map[string]string{"f": strings.TrimPrefix(strings.TrimSuffix(documents, "\n---"), "\n")})
	xdstest.NoError(t, err)
	in.Services, in.Policies = content.Services, content.Policies
	if isThere {
		var of any
		xdstest.NoError(t, yaml.Unmarshal([]byte(values), &of))
		text, err := json.Marshal(of)
		xdstest.NoError(t, err)
		var services []*meshroute.Service
		xdstest.NoError(t, json.Unmarshal(text, &services))
		in.Services = append(in.Services, services...)
	}
	return in
}

func titleOf(r *meshroute.Resource) string {
	title := typeurl.ShortName(r.TypeURL) + " " + r.Name
	if r.Parameters.IsZero() {
		return title
	}
	return title + " " + r.Parameters.String()
}

// shorter leaves out what is the same in all resources.
var shorter = strings.NewReplacer(
	`"http_filters":[{"name":"router","typed_config":{"@type":"type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}],`, "",
	`"config_source":{"ads":{},"resource_api_version":"V3"},`, "", `"eds_config":{"ads":{},"resource_api_version":"V3"},`, "", `"@type":"type.googleapis.com/`, `"@type":"`,
	`,{"name":"router","typed_config":{"@type":"type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}`, "",
	`,"http2_protocol_options":{}`, "",
)

// textOf returns a resource as JSON, or the error in its place.
func textOf(t *testing.T, r *meshroute.Resource) string {
	if r.Err != nil {
		return r.Err.String()
	}
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(r.Message)
	xdstest.NoError(t, err)
	var value any
	xdstest.NoError(t, json.Unmarshal(text, &value))
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	xdstest.NoError(t, encoder.Encode(value)) // in the order of the keys
	return shorter.Replace(strings.TrimSpace(b.String()))
}
