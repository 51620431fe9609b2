package schema

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/document"
	"github.com/dynxds/dynxds/mesh/internal/folder"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

func compiled(t *testing.T, generate func() ([]byte, error)) *jsonschema.Schema {
	t.Helper()
	text, err := generate()
	xdstest.NoError(t, err)
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	xdstest.NoError(t, err)
	c := jsonschema.NewCompiler()
	xdstest.NoError(t, c.AddResource("schema.json", parsed))
	return c.MustCompile("schema.json")
}

// refused returns why the schema refuses a document of a file, or nil.
func refused(t *testing.T, s *jsonschema.Schema, text []byte) error {
	t.Helper()
	var found document.Faults
	for _, doc := range document.Parse("f.yaml", text, &found) {
		text, _ := doc.JSON()
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		xdstest.NoError(t, err)
		if err := s.Validate(value); err != nil {
			return err
		}
	}
	return found.Err()
}

func TestExamplesValidate(t *testing.T) {
	t.Parallel()
	s := compiled(t, Folder)
	files := 0
	xdstest.NoError(t, filepath.WalkDir("../../..", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".yaml" && filepath.Ext(path) != ".json" {
			return err
		}
		text, err := os.ReadFile(path)
		// Only what the reader of folders accepts is for it.
		if err != nil || folder.Parse(path, text).Err() != nil {
			return err
		}
		files++
		if err := refused(t, s, text); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		return nil
	}))
	if files < 8 {
		t.Errorf("%d files were read", files)
	}
}

func TestMistakesAreRefused(t *testing.T) {
	t.Parallel()
	s := compiled(t, Folder)
	const service = "kind: Service\nname: a\n"
	for text, bad := range map[string]bool{
		service:                                 false,
		service + "tls: null\n":                 false,
		service + "endpoints: null\n":           false,
		service + "timeout: 5\n":                true,
		service + "endpoint: []\n":              true,
		service + "endpoints: {}\n":             true,
		service + "loadReporting: yes please\n": true,
		service + "endpoints: [{weight: 1}]\n":  true,
		service + "endpoints: [{address: \"10.0.0.1:1\", weight: 0}]\n":                                                 true,
		service + "endpoints: [{address: \"10.0.0.1:1\", weight: a}]\n":                                                 true,
		service + "endpoints: [{address: \"10.0.0.1:1\", health: Ill}]\n":                                               true,
		service + "endpoints: [{address: \"10.0.0.1:1\", tags: {a: 1}}]\n":                                              true,
		service + "loadBalancing: {policy: ringhash}\n":                                                                 true,
		service + "loadBalancing: {policy: LeastRequest, choiceCount: 3, slowStart: {window: 1s}}\n":                    false,
		service + "sessionAffinity: {header: x-session}\n":                                                              false,
		"name: a\nkind: Servce\n":                                                                                       true,
		"kind: Service\n":                                                                                               true,
		"kind: Resource\nresource: {}\noverride: maybe\n":                                                               true,
		"kind: MeshHTTPRoute\nname: a\nspec: {to: []}\n":                                                                true,
		"kind: MeshHTTPRoute\nname: a\nspec: {to: [{targetRef: {kind: MeshService, name: a}, rules: [{match: []}]}]}\n": true,
		"kind: MeshHTTPRoute\nname: a\nspec: {to: [{targetRef: {kind: MeshService, name: a}, rules: [{}]}]}\n":          false,
	} {
		read := folder.Parse("f.yaml", []byte(text)).Err()
		checked := refused(t, s, []byte(text))
		if (read != nil) != bad || (checked != nil) != bad {
			t.Errorf("%s\nthe reader says %v, the schema %v", text, read, checked)
		}
	}
}

func TestBootstraps(t *testing.T) {
	t.Parallel()
	s := compiled(t, Bootstrap)
	const creds = `"channel_creds": [{"type": "insecure"}]`
	const server = `{"server_uri": "a", ` + creds + `}`
	for text, bad := range map[string]bool{
		string(bootstrapExample):                          false,
		`{"xds_servers": [` + server + `]}`:               false,
		`{"xds_servers": [` + server + `], "nodes": 1}`:   false, // unknown keys are ignored
		`{"xds_servers": [` + server + `], "node": null}`: false,
		`{}`:                                 true,
		`[]`:                                 true,
		`{"xds_servers": []}`:                true,
		`{"xds_servers": ` + server + `}`:    true,
		`{"xds_servers": [{` + creds + `}]}`: true,
		`{"xds_servers": [{"server_uri": 1, ` + creds + `}]}`:                                         true,
		`{"xds_servers": [{"server_uri": "a"}]}`:                                                      true,
		`{"xds_servers": [{"server_uri": "a", "channel_creds": ["insecure"]}]}`:                       true,
		`{"xds_servers": [{"server_uri": "a", "channel_creds": [{}]}]}`:                               true,
		`{"xds_servers": [` + server + `], "node": {"id": 1}}`:                                        true,
		`{"xds_servers": [` + server + `], "node": {"metadata": "m"}}`:                                true,
		`{"xds_servers": [` + server + `], "authorities": ["a"]}`:                                     true,
		`{"xds_servers": [` + server + `], "authorities": {"a": {}}}`:                                 false,
		`{"xds_servers": [` + server + `], "authorities": {"a": {"xds_servers": {}}}}`:                true,
		`{"xds_servers": [` + server + `], "certificate_providers": {"p": {"config": {}}}}`:           true,
		`{"xds_servers": [` + server + `], "certificate_providers": {"p": {"plugin_name": "other"}}}`: false,
		`{"xds_servers": [` + server + `], "resource_cache": {"directory": 1}}`:                       true,
		`{"xds_servers": [` + server + `], "resource_cache": {}}`:                                     true,
	} {
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader([]byte(text)))
		xdstest.NoError(t, err)
		_, read := bootstrap.Parse("", []byte(text))
		checked := s.Validate(value)
		if (read != nil) != bad || (checked != nil) != bad {
			t.Errorf("%s\nthe reader says %v, the schema %v", text, read, checked)
		}
	}
}
