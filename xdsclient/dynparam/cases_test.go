package dynparam_test

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
	discoveryv3 "github.com/dynxds/dynxds/proto/dynxds/discovery/v3"
	"github.com/dynxds/dynxds/xdsclient/dynparam"
)

// TestCases runs the cases of testdata/cases.txt, which describes its lines.
func TestCases(t *testing.T) {
	t.Parallel()
	const file = "testdata/cases.txt"
	got := ""
	var c dynparam.Constraints
	for line := range strings.Lines(golden.Read(t, file)) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, " ") {
			continue
		}
		got += line + "\n"
		switch variants, among := strings.CutPrefix(line, "among "); {
		case among:
			got += "  " + choose(t, c, variants) + "\n"
		case line == "names":
			got += "  " + named(t, c) + "\n"
		case strings.HasPrefix(line, "{"):
			m := new(discoveryv3.DynamicParameterConstraints)
			xdstest.NoError(t, prototext.Unmarshal([]byte(line[1:len(line)-1]), m))
			var err error
			var faults *dynparam.Faults
			if c, err = dynparam.FromProto(m); errors.As(err, &faults) {
				for _, fault := range faults.List {
					got += "  " + fault.String() + "\n"
				}
			} else {
				got += "  " + c.String() + "\n"
			}
		}
	}
	golden.Check(t, file, got)
}

// named returns the variant that constraints name, which have one exact value for each key.
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
		values := map[string]string{}
		for _, pair := range parameter.FindAllStringSubmatch(one, -1) {
			values[unquote(pair[1])] = unquote(pair[2])
		}
		p, err := dynparam.NewParameters(values)
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
