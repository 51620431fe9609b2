package schema_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
	"github.com/dynxds/dynxds/mesh/internal/document"
	"github.com/dynxds/dynxds/mesh/internal/folder"
	"github.com/dynxds/dynxds/mesh/internal/meshpolicy"
	"github.com/dynxds/dynxds/mesh/internal/schema"
	"github.com/dynxds/dynxds/xdsclient/bootstrap"
)

func compiled(t *testing.T, text string) *jsonschema.Schema {
	t.Helper()
	parsed, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
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
	s := compiled(t, schema.Folder)
	files := 0
	xdstest.NoError(t, filepath.WalkDir("../../..", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".yaml" && filepath.Ext(path) != ".json" {
			return err
		}
		text, err := os.ReadFile(path)
		// Only what the reader of folders accepts is for it.
		if err != nil || readFolder(text) != nil {
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

func readFolder(text []byte) error {
	_, err := new(folder.Parser).Parse(map[string]string{"": string(text)})
	return err
}

func readBootstrap(text []byte) error {
	_, err := bootstrap.Parse("", text)
	return err
}

func readPolicy(text []byte) error {
	var found document.Faults
	for _, doc := range document.Parse("", text, &found) {
		meshpolicy.Read(doc, meshpolicy.DocumentKind, nil)
	}
	return found.Err()
}

// crd returns the schema of the CRD.
func crd(t *testing.T) string {
	var of struct {
		Spec struct {
			Versions []struct{ Schema map[string]any }
		}
	}
	xdstest.NoError(t, yaml.Unmarshal([]byte(golden.Read(t, "../../../deploy/kubernetes/crd.yaml")), &of))
	text, err := json.Marshal(of.Spec.Versions[0].Schema["openAPIV3Schema"])
	xdstest.NoError(t, err)
	return string(text)
}

// A schema and the reader say the same of an example with a mistake in any place.
func TestMistakes(t *testing.T) {
	t.Parallel()
	const policy = "../../kubernetes/internal/cluster/testdata/meshhttproute.yaml"
	for example, c := range map[string]struct {
		schema string
		read   func([]byte) error
	}{
		"testdata/service.yaml":       {schema.Folder, readFolder},
		"testdata/resource.yaml":      {schema.Folder, readFolder},
		"testdata/meshhttproute.yaml": {schema.Folder, readFolder},
		"testdata/bootstrap.json":     {schema.Bootstrap, readBootstrap},
		policy:                        {crd(t), readPolicy},
	} {
		t.Run(filepath.Base(example), func(t *testing.T) {
			t.Parallel()
			s := compiled(t, c.schema)
			for document := range strings.SplitSeq(golden.Read(t, example), "\n---\n") {
				var root any
				xdstest.NoError(t, yaml.Unmarshal([]byte(document), &root))
				mistakes("", root, func(v any) { root = v }, func(mistake string) error {
					if example == policy && (!strings.HasPrefix(mistake, ".spec") || elsewhere.MatchString(mistake)) {
						return nil
					}
					text, err := json.Marshal(root)
					xdstest.NoError(t, err)
					value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
					xdstest.NoError(t, err)
					refused, found := s.Validate(value), c.read(text)
					switch {
					case found == nil && refused != nil:
						t.Errorf("%s: the reader accepts it, the schema says %v", mistake, refused)
					case isWrong(found) && refused == nil && !alternatives.MatchString(mistake):
						t.Errorf("%s: the schema accepts it, the reader says %v", mistake, found)
					}
					return found
				})
			}
		})
	}
}

var (
	// wrong matches problems that a schema knows. A number may be in a string, as any text.
	wrong = regexp.MustCompile(`^unknown (field|value) |^the field .* is missing|^expected (a [^n]|an |true ).*, found (nothing|the |(a|an) (\w+|empty list)$)`)
	// elsewhere matches what is no mistake in a folder, or none of an object that an API server has taken.
	elsewhere = regexp.MustCompile(`\.unknown$| is null$|\.matches is {}$`)
	// alternatives matches fields of which one has to be there.
	alternatives = regexp.MustCompile(`\.path(\.\w+)? is |\.to\[0\]\.rules is |\.retry is {}`)
)

func isWrong(err error) bool {
	all, ok := errors.AsType[*document.Faults](err)
	return ok && slices.ContainsFunc(all.List, func(f document.Fault) bool { return wrong.MatchString(f.Problem) })
}

// free are the objects that protobuf, a plugin or Kubernetes reads.
var free = []string{"config", "metadata", "dynamic_parameter_constraints", "outlierDetection", "filters[0]", "resource"}

// mistakes calls check with each mistake in a value of an example, which set replaces.
func mistakes(path string, value any, set func(any), check func(mistake string) error) {
	others := []any{nil, true, -1, 1.5, "a", []any{}, map[string]any{}}
	if path == "" {
		others[0] = value // and not null: without a document there is nothing to refuse
	}
	for _, other := range others {
		set(other)
		text, _ := json.Marshal(other)
		check(fmt.Sprintf("%s is %s", path, text))
	}
	set(value)
	if slices.Contains(free, path[strings.LastIndexByte(path, '.')+1:]) {
		return
	}
	switch value := value.(type) {
	case map[string]any:
		value["unknown"] = 1
		_, names, _ := strings.Cut(fmt.Sprint(check(path+".unknown")), `unknown field "unknown"; it can be `) // all that the reader knows
		delete(value, "unknown")
		for _, name := range strings.FieldsFunc(names, func(r rune) bool { return r == ',' || r == ' ' }) {
			if _, has := value[name]; !has {
				value[name] = nil
				check(path + "." + name + " is null")
				delete(value, name)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(value)) {
			field := value[name]
			delete(value, name)
			check(path + "." + name + " is left out")
			value[name] = field
			mistakes(path+"."+name, field, func(v any) { value[name] = v }, check)
		}
	case []any:
		for i := range value {
			mistakes(fmt.Sprintf("%s[%d]", path, i), value[i], func(v any) { value[i] = v }, check)
		}
	}
}
