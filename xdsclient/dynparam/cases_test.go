package dynparam_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
	discoveryv3 "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	dynamicparametersv3 "github.com/dynxds/dynxds/proto/dynxds/dynamic_parameters/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// TestCases follows testdata/cases.txt, which says what its lines are.
func TestCases(t *testing.T) {
	t.Parallel()
	const file = "testdata/cases.txt"
	var got []string
	c := &cases{t: t}
	for line := range strings.SplitSeq(golden.Read(t, file), "\n") {
		if strings.HasPrefix(line, " ") {
			continue
		}
		got = append(got, line)
		if line == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "== ") {
			continue
		}
		for _, said := range c.do(golden.Repeat(line)) {
			got = append(got, "  "+said)
		}
	}
	golden.Check(t, file, strings.Join(got, "\n"))
}

// cases has what the lines so far have made.
type cases struct {
	t           *testing.T
	constraints dynparam.Constraints
	types       dynparam.ByType
}

func (c *cases) do(line string) []string {
	verb, rest, _ := strings.Cut(line, " ")
	switch verb {
	case "among":
		return []string{choose(c.t, c.constraints, rest)}
	case "names":
		return []string{named(c.t, c.constraints)}
	case "json":
		return c.read(fromJSON(c.t, unquote(rest)))
	case "exact":
		return c.read(dynparam.Exact(values(rest)))
	case "parameters":
		p, err := dynparam.NewParameters(values(rest))
		if err != nil {
			return c.faults(err)
		}
		wire, err := proto.MarshalOptions{Deterministic: true}.Marshal(&discoveryv3.Resource{DynamicParameters: values(rest)})
		xdstest.NoError(c.t, err)
		xdstest.Equal(c.t, "parameters on the wire", string(wire), p.Key())
		return []string{c.bounded(p.String())}
	case "types", "over":
		given, err := byType(c.t, rest)
		if err != nil {
			return c.faults(err)
		}
		if verb == "over" {
			given = c.types.Merge(given)
		}
		return c.byType(given, nil)
	case "map":
		m := new(dynamicparametersv3.DynamicParameterConstraintsMap)
		xdstest.NoError(c.t, prototext.Unmarshal([]byte(rest), m))
		return c.byType(dynparam.ByTypeFromProto(m))
	case "for":
		var all []string
		for name := range strings.FieldsSeq(rest) {
			all = append(all, name+": "+c.types.For(name).String())
		}
		return all
	default:
		m := new(discoveryv3.DynamicParameterConstraints)
		xdstest.NoError(c.t, prototext.Unmarshal([]byte(line[1:len(line)-1]), m))
		return c.read(dynparam.FromProto(m))
	}
}

// read says what has been read, which has to survive JSON.
func (c *cases) read(read dynparam.Constraints, err error) []string {
	c.constraints = read
	if err != nil {
		xdstest.Equal(c.t, "constraints beside an error", true, read.IsZero())
		return c.faults(err)
	}
	text, err := json.Marshal(read)
	xdstest.NoError(c.t, err)
	again, err := fromJSON(c.t, string(text))
	xdstest.NoError(c.t, err)
	xdstest.Equal(c.t, "constraints by way of JSON", read.Key(), again.Key())
	return []string{c.bounded(read.String())}
}

// bounded returns a text that fits into a line of the log.
func (c *cases) bounded(text string) string {
	if len(text) > 1100 || strings.Contains(text, "\n") || !utf8.ValidString(text) {
		c.t.Errorf("%d bytes: %q", len(text), text)
	}
	return text
}

// byType says what has been read, which has to survive DPDS, but for those of every type.
func (c *cases) byType(read dynparam.ByType, err error) (all []string) {
	if err != nil {
		xdstest.Equal(c.t, "types beside an error", 0, len(read.Types()))
		return c.faults(err)
	}
	again, err := dynparam.ByTypeFromProto(read.ToProto())
	xdstest.NoError(c.t, err)
	own := slices.DeleteFunc(read.Types(), func(name string) bool { return name == dynparam.AnyType })
	xdstest.Equal(c.t, "types by way of DPDS", len(own), len(again.Types()))
	for _, name := range read.Types() {
		xdstest.Equal(c.t, name, name != dynparam.AnyType, again.For(name).Equal(read.For(name)))
		all = append(all, name+": "+read.For(name).String())
	}
	xdstest.Equal(c.t, "a merge with itself is the same", true, read.Equal(read.Merge(read)))
	c.types = read
	return all
}

// faults are those of an error, or the first and how many more there are.
func (c *cases) faults(err error) (all []string) {
	if len(err.Error()) > 40_000 {
		c.t.Errorf("an error of %d bytes", len(err.Error()))
	}
	var found *dynparam.Faults
	if !errors.As(err, &found) {
		return []string{err.Error()}
	}
	for _, fault := range found.List {
		all = append(all, fault.String())
	}
	if found.Omitted > 0 {
		return []string{all[0], fmt.Sprintf("and %d more, and %d omitted", len(all)-1, found.Omitted)}
	}
	return all
}

// fromJSON reads JSON, and compares with what the standard reader makes of it.
func fromJSON(t *testing.T, text string) (c dynparam.Constraints, err error) {
	if err = c.UnmarshalJSON([]byte(text)); err == nil {
		m := new(discoveryv3.DynamicParameterConstraints)
		if (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal([]byte(text), m) == nil {
			standard, err := dynparam.FromProto(m)
			xdstest.NoError(t, err)
			xdstest.Equal(t, "constraints to protojson", standard.Key(), c.Key())
		}
	}
	return c, err
}

// byType reads names of types, each with the pairs behind it.
func byType(t *testing.T, text string) (dynparam.ByType, error) {
	all, last := make(map[string]dynparam.Constraints), ""
	for word := range strings.FieldsSeq(text) {
		key, value, pair := strings.Cut(word, "=")
		if !pair {
			last = unquote(word)
			all[last] = dynparam.Constraints{}
			continue
		}
		more, err := dynparam.Exact(map[string]string{key: value})
		xdstest.NoError(t, err)
		all[last] = all[last].Merge(more)
	}
	return dynparam.NewByType(all)
}

func named(t *testing.T, c dynparam.Constraints) string {
	p, ok := c.Parameters()
	if !ok {
		return "no variant"
	}
	xdstest.Equal(t, "whether the variant matches", true, c.Match(p))
	xdstest.Equal(t, "whether it is zero", c.IsZero(), p.IsZero())
	again, err := dynparam.Exact(p.Map())
	xdstest.NoError(t, err)
	xdstest.Equal(t, "whether it makes the constraints", true, again.Equal(c))
	return p.String()
}

const word = `"(?:[^"\\]|\\.)*"|[^{},="]*`

var (
	variant   = regexp.MustCompile(`\{(?:[^{}"]|"(?:[^"\\]|\\.)*")*\}`)
	parameter = regexp.MustCompile(`(` + word + `)=(` + word + `)`)
)

// choose returns which variants match, and the choice among them.
func choose(t *testing.T, c dynparam.Constraints, text string) string {
	var all []dynparam.Parameters
	var matching []string
	for _, one := range variant.FindAllString(text, -1) {
		p, err := dynparam.NewParameters(values(one))
		xdstest.NoError(t, err)
		xdstest.Equal(t, "parameters as text", one, p.String())
		if all = append(all, p); c.Match(p) {
			matching = append(matching, one)
		}
	}
	choice := c.Choose(all)
	xdstest.Equal(t, "how many match", len(matching), choice.Matching)
	switch {
	case choice.Index < 0:
		return "none matches"
	case choice.Rival < 0:
		return strings.Join(matching, " ") + ": " + all[choice.Index].String()
	default:
		return strings.Join(matching, " ") + ": " + all[choice.Index].String() + ", or " + all[choice.Rival].String()
	}
}

// unquote returns the text that a word in quotes, or without, stands for.
func unquote(word string) string {
	if text, err := strconv.Unquote(word); err == nil {
		return text
	}
	return word
}

func values(text string) map[string]string {
	values := make(map[string]string)
	for _, pair := range parameter.FindAllStringSubmatch(text, -1) {
		values[unquote(pair[1])] = unquote(pair[2])
	}
	return values
}
