package xdsresource

import (
	"fmt"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	routepb "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/dynxds/dynxds/httpfilter"
	"github.com/dynxds/dynxds/internal/xdsmsg"
	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
	"github.com/dynxds/dynxds/xdsclient"
)

// TestGolden decodes the resources of testdata/*.txt and compares what it prints about them. A file has blocks with an
// empty line between them:
//
//	base blue Cluster
//	  name:"blue" type:EDS eds_cluster_config{eds_config{ads{}}}
//	----
//	Name: "blue"
//
//	blue: a service name
//	  eds_cluster_config{service_name:"svc"}
//	----
//	EDSServiceName: "svc"
//
// The first block names a resource, the second sets more fields of the resource. After "----" stands how the value differs
// from the value of the base, "- " before what only the base has; for a resource that is rejected, its errors, each
// after "! "; and what is ignored, after "~ ", or "~! " for a warning.
//
// A header "base NAME TYPE at PATH" is for cases whose fields are set at a place within the resource: the last item of each list
// on the path. A case may have the name of a type in place of a base, and a base the name of another one in place of a type;
// a base that is rejected is compared with that. Options follow after a comma, as in "blue, trusted: title". [Name] is the URL of
// a message in anyTypes. Of a case with RPCs (routedRPCs) is printed what becomes of them, in place of the value, and of one with addresses of names
// ("> one:80=10.0.0.1:80,[::1]:80 two:81=") the endpoints that a cluster has then. Run with -update to write what is printed now.
func TestGolden(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	xdstest.NoError(t, err)
	for _, file := range files {
		xdstest.Parallel(t, strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			golden.Check(t, file, goldenFile{t, map[string]goldenBase{}}.run(golden.Read(t, file)))
		})
	}
}

// goldenFile runs the blocks of a file.
type goldenFile struct {
	t     *testing.T
	bases map[string]goldenBase
}

// goldenBase is a resource that cases set fields of, at the place of the path, and what is printed about the resource.
type goldenBase struct {
	rt      *xdsclient.ResourceType
	message proto.Message
	path    []string
	lines   []string
}

// shorthands are what fields may have for type URLs of the test, and parts of a TLS context.
var shorthands = strings.NewReplacer(slices.Concat(tlsParts, []string{
	"$Plain", `"` + plainFilterURL + `"`, "$Server", `"` + serverFilterURL + `"`, "$Overridable", `"` + overridableURL + `"`,
	"$Override", `"` + overrideURL + `"`, "$Unknown", `"` + unknownURL + `"`,
})...)

// goldenOptions are what a case may name.
var goldenOptions = map[string]xdsclient.DecodeOptions{
	"trusted":        trusted,
	"with providers": withProviders(),
}

func (f goldenFile) run(text string) string {
	blocks := strings.Split(strings.TrimSuffix(text, "\n"), "\n\n")
	for i, block := range blocks {
		given, _, ok := strings.Cut(block, "\n----")
		if !ok {
			continue // a comment
		}
		lines := append([]string{given, "----"}, f.block(given)...)
		if n := len(lines) - 2; n > 90 { // of a list at its limit
			lines = append(lines[:4:4], fmt.Sprintf("… (%d lines)", n))
		}
		for j, line := range lines[2:] {
			if n := len(line); n > 1500 {
				lines[2+j] = fmt.Sprintf("%.150s… (%d bytes)", line, n)
			}
		}
		blocks[i] = strings.Join(lines, "\n")
	}
	return strings.Join(blocks, "\n\n") + "\n"
}

var blockHeader = regexp.MustCompile(`(?m)^(?:base (\w+) (\w+)(?: at (\S+))?|([\w ]+?)(?:, ([\w ]+))?: .*)$`)

// block returns what is printed about the resource of a block.
func (f goldenFile) block(given string) []string {
	at := blockHeader.FindStringSubmatchIndex(given)
	if at == nil {
		f.t.Fatalf("no header in:\n%s", given)
	}
	m := blockHeader.FindStringSubmatch(given)
	fields, rpcs, _ := strings.Cut(given[at[1]:], "\n> ")
	base := f.base(m[2] + m[4])
	if name := m[1]; name != "" {
		base.message = f.with(base, fields)
		if m[3] != "" {
			base.path = strings.Split(m[3], ".")
		}
		lines := printed(f.t, base.rt, base.message, xdsclient.DecodeOptions{})
		if !rejected(lines) {
			base.lines = lines
		}
		f.bases[name] = base
		return lines
	}
	options, ok := goldenOptions[m[5]]
	if !ok && m[5] != "" {
		f.t.Fatalf("there are no options %q", m[5])
	}
	message := f.with(base, fields)
	lines := printed(f.t, base.rt, message, options)
	switch {
	case rejected(lines):
		return lines
	case rpcs != "":
		value, err := base.rt.Decode(xdsmsg.Any(message), options)
		xdstest.NoError(f.t, err)
		ignored := slices.DeleteFunc(lines, func(line string) bool { return line[0] != '~' })
		if c, ok := value.(*Cluster); ok {
			return resolved(c, rpcs)
		}
		return append(routedRPCs(f.t, value.(*RouteConfiguration), rpcs), ignored...)
	default:
		return difference(base.lines, lines)
	}
}

// resolved prints the endpoints of a cluster whose names have addresses.
func resolved(c *Cluster, text string) []string {
	addresses := make(map[string][]string)
	for _, word := range strings.Fields(text) {
		name, list, _ := strings.Cut(word, "=")
		addresses[name] = strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
	}
	p := valuePrinter{}
	p.print("", reflect.ValueOf(c.Resolved(func(name string) []string { return addresses[name] })))
	return p.lines
}

// base returns a base by its name, or an empty one by the name of its type.
func (f goldenFile) base(name string) goldenBase {
	f.t.Helper()
	if base, ok := f.bases[name]; ok {
		return base
	}
	i := slices.IndexFunc(allTypes, func(rt *xdsclient.ResourceType) bool { return rt.Name == name })
	if i < 0 {
		f.t.Fatalf("no type or base is called %q", name)
	}
	return goldenBase{rt: allTypes[i]}
}

func rejected(lines []string) bool { return len(lines) > 0 && strings.HasPrefix(lines[0], "! ") }

// with returns the resource of a base with more fields.
func (f goldenFile) with(base goldenBase, fields string) proto.Message {
	f.t.Helper()
	descriptor, err := protoregistry.GlobalTypes.FindMessageByURL(base.rt.TypeURL)
	xdstest.NoError(f.t, err)
	message := descriptor.New().Interface()
	if base.message != nil {
		message = proto.Clone(base.message)
	}
	setFields(f.t, message, base.path, shorthands.Replace(golden.Repeat(fields)))
	return message
}

// setFields sets more fields at a place within a message. The path has the names of fields, and leads to the last item of a list,
// and into an Any.
func setFields(t testing.TB, m proto.Message, path []string, fields string) {
	t.Helper()
	if packed, ok := m.(*anypb.Any); ok {
		inner, err := packed.UnmarshalNew()
		xdstest.NoError(t, err)
		setFields(t, inner, path, fields)
		xdstest.NoError(t, packed.MarshalFrom(inner))
		return
	}
	if len(path) == 0 {
		withText(t, m, fields)
		return
	}
	field := m.ProtoReflect().Descriptor().Fields().ByName(protoreflect.Name(path[0]))
	value := m.ProtoReflect().Mutable(field)
	if field.IsList() {
		setFields(t, value.List().Get(value.List().Len()-1).Message().Interface(), path[1:], fields)
		return
	}
	setFields(t, value.Message().Interface(), path[1:], fields)
}

// printed is what TestGolden prints about a resource.
func printed(t *testing.T, rt *xdsclient.ResourceType, m proto.Message, o xdsclient.DecodeOptions) []string {
	t.Helper()
	var lines []string
	for _, f := range decodeFaults(t, rt, m, o) {
		// protobuf writes one of two spaces, at random.
		lines = append(lines, "! "+f.Path+": "+strings.ReplaceAll(f.Problem, "\u00a0", " "))
	}
	resource := xdsmsg.Any(m)
	ignored, err := IgnoredFields(resource)
	if lines == nil {
		value, err := rt.Decode(resource, o)
		xdstest.NoError(t, err)
		p := valuePrinter{}
		p.print("", reflect.ValueOf(value))
		lines, ignored = p.lines, rt.Ignored(value)
		checkLeftOut(t, m, value)
	}
	xdstest.NoError(t, err)
	for _, i := range ignored {
		mark := "~ "
		if i.Severity == xdsclient.SeverityWarning {
			mark = "~! "
		}
		lines = append(lines, mark+i.String())
	}
	return lines
}

// checkLeftOut checks that each route is decoded or left out, and that each plugin of a route is there.
func checkLeftOut(t *testing.T, m proto.Message, value any) {
	t.Helper()
	rc, ok := value.(*RouteConfiguration)
	if !ok {
		return
	}
	for i, vh := range m.(*routepb.RouteConfiguration).GetVirtualHosts() {
		xdstest.Equal(t, "routes of "+vh.GetName(), len(vh.GetRoutes()), len(rc.VirtualHosts[i].Routes)+len(rc.VirtualHosts[i].LeftOut))
		for name := range rc.VirtualHosts[i].Clusters {
			if _, isPlugin := PluginName(name); isPlugin && rc.Plugins[name] == nil {
				t.Errorf("a route forwards to %s, which is not among the plugins", name)
			}
		}
	}
}

// difference is how lines differ from the lines of a base: the paths that only the base has, and the lines that are others.
func difference(base, lines []string) []string {
	var diff []string
	for _, line := range base {
		path, _, _ := strings.Cut(line, ": ")
		if !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, path+": ") }) {
			diff = append(diff, "- "+path)
		}
	}
	for _, line := range lines {
		if !slices.Contains(base, line) {
			diff = append(diff, line)
		}
	}
	return diff
}

// valuePrinter prints a Go value, a line for each part that is not zero. What is in expanded has a line for each of its fields.
type valuePrinter struct{ lines []string }

var expanded = []reflect.Type{
	reflect.TypeFor[Listener](), reflect.TypeFor[RouteConfiguration](), reflect.TypeFor[VirtualHost](), reflect.TypeFor[Route](),
	reflect.TypeFor[Cluster](), reflect.TypeFor[Endpoints](),
}

func (p *valuePrinter) print(path string, v reflect.Value) {
	switch {
	case v.Kind() == reflect.Pointer && slices.Contains(expanded, v.Type().Elem()) && !v.IsNil():
		p.print(path, v.Elem())
	case slices.Contains(expanded, v.Type()):
		eachField(v, func(name string, field reflect.Value) { p.print(strings.TrimPrefix(path+"."+name, "."), field) })
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			p.print(fmt.Sprintf("%s[%d]", path, i), v.Index(i))
		}
	default:
		if text := inline(v); text != "" {
			p.lines = append(p.lines, path+": "+text)
		}
	}
}

// eachField calls f for the exported fields of a struct, and for those of embedded structs.
func eachField(v reflect.Value, f func(name string, field reflect.Value)) {
	for i := range v.NumField() {
		switch field := v.Type().Field(i); {
		case field.Name == "Ignored" || field.Name == "Provider" || !field.IsExported():
		case field.Anonymous && !v.Field(i).IsZero():
			eachField(reflect.Indirect(v.Field(i)), f)
		default:
			f(field.Name, v.Field(i))
		}
	}
}

// inline is a value on one line; "" if it is zero.
func inline(v reflect.Value) string {
	if !v.IsValid() || v.IsZero() && v.Kind() != reflect.Struct {
		return ""
	}
	_, printsItself := v.Interface().(fmt.Stringer)
	switch {
	case v.Type() == reflect.TypeFor[Set[codes.Code]]():
		var set []codes.Code
		for code := codes.OK; code <= codes.Unauthenticated; code++ {
			if v.Interface().(Set[codes.Code]).Has(code) {
				set = append(set, code)
			}
		}
		return fmt.Sprint(set)
	case printsItself && (v.Kind() != reflect.Struct || !v.IsZero()):
		return fmt.Sprint(v.Interface())
	case v.Type() == reflect.TypeFor[httpfilter.Filter]():
		return filepath.Ext(v.Interface().(httpfilter.Filter).TypeURLs()[0])[1:]
	case v.Kind() == reflect.Interface:
		return inline(v.Elem())
	case v.Kind() == reflect.Pointer:
		if text := inline(v.Elem()); text != "" {
			return text
		}
		return fmt.Sprintf("%+v", v.Elem().Interface())
	case v.Kind() == reflect.Struct:
		var fields []string
		eachField(v, func(name string, field reflect.Value) {
			if text := inline(field); text != "" {
				fields = append(fields, name+":"+text)
			}
		})
		if fields != nil {
			return "{" + strings.Join(fields, " ") + "}"
		}
		if v.NumField() > 0 && !v.Type().Field(0).IsExported() && !v.IsZero() {
			return fmt.Sprintf("%+v", v.Interface())
		}
		return ""
	case v.Kind() == reflect.Slice:
		var items []string
		for i := range v.Len() {
			items = append(items, inline(v.Index(i)))
		}
		return "[" + strings.Join(items, " ") + "]"
	case v.Kind() == reflect.Map:
		var items []string
		for _, key := range v.MapKeys() {
			items = append(items, fmt.Sprintf("%v:%s", key, inline(v.MapIndex(key))))
		}
		slices.Sort(items)
		return "{" + strings.Join(items, " ") + "}"
	case v.Kind() == reflect.String:
		return fmt.Sprintf("%q", v.String())
	default:
		return fmt.Sprint(v.Interface())
	}
}
