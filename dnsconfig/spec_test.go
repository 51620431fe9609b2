package dnsconfig

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/internal/xdstest/golden"
)

// here is the client that choices are matched against by default.
var here = Client{Language: "go", Hostname: "host-1", Draw: 40}

// choice is a choice for a service config with the given name, with fields in front.
func choice(name string, fields ...string) string {
	return "{" + strings.Join(append(fields, `"serviceConfig":{"name":"`+name+`"}`), ",") + "}"
}

func list(choices ...string) string { return "[" + strings.Join(choices, ",") + "]" }

// TestChoices has the sentences of gRFC A2 about the list of choices. Those about DNS are in lookup_test.go.
func TestChoices(t *testing.T) {
	golden.Scripts(t, "testdata/choices.txt", 0, func(t testing.TB) func(string) string {
		var l *List
		return func(line string) string {
			verb, text, _ := strings.Cut(golden.Repeat(line), " ")
			if verb == "client" {
				words := strings.Fields(text)
				for i, word := range words {
					words[i] = strings.TrimPrefix(word, "-")
				}
				draw, err := strconv.Atoi(words[2])
				xdstest.NoError(t, err)
				if c := l.Choose(Client{Language: words[0], Hostname: words[1], Draw: draw}); c != nil {
					return c.ServiceConfig
				}
				return "none"
			}
			if verb == "quoted" {
				var err error
				text, err = strconv.Unquote(text)
				xdstest.NoError(t, err)
			}
			var err error
			if l, err = Parse(text, refuseBad); err != nil {
				text, _, _ := strings.Cut(err.Error(), ": line ") // what comes then is in encoding/json's words
				return short(t, text)
			}
			var void []string
			for _, v := range l.Void {
				void = append(void, short(t, fmt.Sprintf("%d: %v", v.Index, v.Reason)))
			}
			return strings.Join(void, " | ")
		}
	})
}

// refuseBad stands for gRPC, which validates a service config.
// short is the text of an error, which has to be short, whatever the record has.
func short(t testing.TB, text string) string {
	if len(text) > 1000 {
		t.Errorf("an error of %d bytes: %s", len(text), text)
	}
	return text
}

func refuseBad(text string) error {
	if strings.Contains(text, "bad") {
		return errors.New("no such policy")
	}
	return nil
}

func TestPercentageOfClientsThatUseTheChoice(t *testing.T) {
	t.Parallel()
	for p := range 101 {
		l, err := Parse(list(choice("a", fmt.Sprintf(`"percentage":%d`, p))), nil)
		xdstest.NoError(t, err)
		for draw := range 100 {
			if got := l.Choose(Client{Draw: draw}) != nil; got != (draw < p) {
				t.Errorf("%d%%: a client that drew %d gets the choice: %t", p, draw, got)
			}
		}
	}
}

func TestHostnameIsTheOneAccordingToTheSystem(t *testing.T) {
	t.Parallel()
	want, err := os.Hostname()
	if err != nil {
		t.Skip(err)
	}
	xdstest.Equal(t, "hostname", want, (Options{}).withDefaults().Hostname)
}
