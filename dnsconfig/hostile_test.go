package dnsconfig

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// It is bytes that bound a list, not choices (A2, "Encoding in DNS TXT Records").
func TestAsManyChoicesAsFit(t *testing.T) {
	t.Parallel()
	for entry, most := range map[string]int{"1": (maxSize - 1) / 2, "{}": (maxSize - 1) / 3, `{"serviceConfig":{}}`: (maxSize - 1) / 21} {
		full := list(slices.Repeat([]string{entry}, most)...)
		if l, err := Parse(full, nil); err != nil || len(l.Void)+len(l.Choices) != most {
			t.Errorf("%d times %s in %d bytes: %v", most, entry, len(full), err)
		}
	}
}

// TestBoundedWork: the steepest inputs of the greatest size cost no more than
// others of that size.
func TestBoundedWork(t *testing.T) {
	wide := make([]string, 7000)
	for i := range wide {
		wide[i] = fmt.Sprintf(`"%d":1`, i)
	}
	for name, value := range map[string]string{
		"many keys":         list(`{"serviceConfig":{` + strings.Join(wide, ",") + `}}`),
		"many values":       list(`{"serviceConfig":{"x":[` + strings.Repeat("1,", 30000) + `1]}}`),
		"many objects":      list(`{"serviceConfig":{"x":[` + strings.Repeat("{},", 20000) + `{}]}}`),
		"many void choices": list(slices.Repeat([]string{"{}"}, (maxSize-1)/3)...),
		"many choices":      list(slices.Repeat([]string{`{"serviceConfig":{}}`}, (maxSize-1)/21)...),
		"long string":       list(`{"serviceConfig":{"x":"` + strings.Repeat(`\n`, 30000) + `"}}`),
	} {
		if _, err := Parse(value, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		// The most is 24 for a choice of three bytes, and some more with the race detector.
		if n := testing.AllocsPerRun(1, func() { _, _ = Parse(value, nil) }); n > 9*maxSize {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func FuzzFind(f *testing.F) {
	for _, seed := range []string{"grpc_config=[]", " Grpc_Config\t=x", "` grpc_config=x", "a`=a=b", "=x", "``", "`", "grpc_config", "no\x00value="} {
		f.Add(seed, "grpc_config=1")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		value, found, err := Find([]string{a, b})
		if !found && value != "" || err != nil && found {
			t.Errorf("value %q, found %v, error %v", value, found, err)
		}
		if found && !strings.HasSuffix(a, value) && !strings.HasSuffix(b, value) {
			t.Errorf("value %q is in neither record", value)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		list(choice("a", `"clientLanguage":["go"]`, `"percentage":50`, `"clientHostname":["h"]`), `{}`, `7`),
		`[{"serviceConfig":{"a":[{"b":1,"b":2}]}}]`, `[`, `null`, `[[[[[]]]]]`, `[{"percentage":1e2}]`, "[{\"serviceConfig\":{\"\xff\":1}}]",
	} {
		f.Add(seed, 40)
	}
	f.Fuzz(func(t *testing.T, value string, draw int) {
		l, err := Parse(value, func(text string) error {
			if !json.Valid([]byte(text)) || text[0] != '{' {
				t.Errorf("%q was given for a JSON object", text)
			}
			return nil
		})
		if err != nil {
			return
		}
		seen := map[int]bool{}
		for _, c := range l.Choices {
			seen[c.Index] = true
			if c.Percentage != nil && (*c.Percentage < 0 || *c.Percentage > 100) {
				t.Errorf("percentage %d", *c.Percentage)
			}
		}
		for _, v := range l.Void {
			if v.Reason == nil || seen[v.Index] {
				t.Errorf("void choice %d, reason %v", v.Index, v.Reason)
			}
			seen[v.Index] = true
		}
		for i := range len(seen) {
			if !seen[i] {
				t.Errorf("entry %d is neither a choice nor void", i)
			}
		}
		l.Choose(Client{Language: "go", Hostname: "h", Draw: draw})
	})
}
