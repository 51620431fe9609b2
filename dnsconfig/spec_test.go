package dnsconfig

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// The tests here are the sentences of gRFC A2 (2017-11-10) about the list of
// choices. Those about DNS are in lookup_test.go.

// here is the client that choices are matched against by default.
var here = Client{Language: "go", Hostname: "host-1", Draw: 40}

// choice is a choice for a service config with the given name, with fields in
// front.
func choice(name string, fields ...string) string {
	return "{" + strings.Join(append(fields, `"serviceConfig":{"name":"`+name+`"}`), ",") + "}"
}

func list(choices ...string) string { return "[" + strings.Join(choices, ",") + "]" }

// chosen returns the name of the service config that a client gets, "none", or
// the error.
func chosen(value string, c Client) string {
	l, err := Parse(value, nil)
	if err != nil {
		return "error: " + err.Error()
	}
	got := l.Choose(c)
	if got == nil {
		return "none"
	}
	_, name, _ := strings.Cut(got.ServiceConfig, `{"name":"`)
	return strings.TrimSuffix(name, `"}`)
}

func expectChosen(t *testing.T, value string, c Client, want string) {
	t.Helper()
	if got := chosen(value, c); got != want {
		t.Errorf("%+v gets %s of %s, want %s", c, got, value, want)
	}
}

// expectVoid checks that the only choice is void, and that the reason has all
// of the texts.
func expectVoid(t *testing.T, entry string, texts ...string) {
	t.Helper()
	l, err := Parse(list(entry), nil)
	if err != nil {
		t.Errorf("%s: %v; want one void choice", entry, err)
		return
	}
	if len(l.Choices) != 0 || len(l.Void) != 1 {
		t.Errorf("%s: %d choices and %d void ones, want one void one", entry, len(l.Choices), len(l.Void))
		return
	}
	for _, text := range texts {
		if !strings.Contains(l.Void[0].Reason.Error(), text) {
			t.Errorf("%s is void because of %v, want a reason with %s", entry, l.Void[0].Reason, text)
		}
	}
}

func TestFirstMatchingEntryWins(t *testing.T) {
	t.Parallel()
	expectChosen(t, list(choice("a"), choice("b")), here, "a")
	expectChosen(t, list(choice("a", `"clientLanguage":["java"]`), choice("b"), choice("c")), here, "b")
	expectChosen(t, list(choice("a", `"clientLanguage":["java"]`)), here, "none")
	expectChosen(t, list(), here, "none")
}

func TestFieldThatIsAbsentOrEmptyMatchesAllClients(t *testing.T) {
	t.Parallel()
	for _, c := range []Client{here, {}, {Language: "java", Hostname: "other", Draw: 99}} {
		expectChosen(t, list(choice("a")), c, "a")
		expectChosen(t, list(choice("a", `"clientLanguage":[]`, `"clientHostname":[]`)), c, "a")
	}
}

func TestAllFieldsMustMatch(t *testing.T) {
	t.Parallel()
	const language, percentage, hostname = `"clientLanguage":["go"]`, `"percentage":41`, `"clientHostname":["host-1"]`
	all := list(choice("a", language, percentage, hostname))
	expectChosen(t, all, here, "a")
	expectChosen(t, all, Client{Language: "java", Hostname: "host-1", Draw: 40}, "none")
	expectChosen(t, all, Client{Language: "go", Hostname: "host-2", Draw: 40}, "none")
	expectChosen(t, all, Client{Language: "go", Hostname: "host-1", Draw: 41}, "none")
}

func TestUnexpectedFieldNameVoidsTheWholeChoice(t *testing.T) {
	t.Parallel()
	expectVoid(t, choice("a", `"comment":"x"`), `unexpected field "comment"`)
	// Names are taken exactly as they are written.
	expectVoid(t, choice("a", `"clientlanguage":["go"]`), `unexpected field "clientlanguage"`)
	expectVoid(t, choice("a", `"clientHostName":["host-1"]`), `unexpected field "clientHostName"`)
	expectVoid(t, choice("a", `"":1`), `unexpected field ""`)
	// A field of the service config is not the list's business.
	expectChosen(t, `[{"serviceConfig":{"name":"a"}}]`, here, "a")
}

func TestClientLanguageIsCaseInsensitive(t *testing.T) {
	t.Parallel()
	for _, spelling := range []string{"go", "GO", "Go", "gO"} {
		expectChosen(t, list(choice("a", `"clientLanguage":["java","`+spelling+`"]`)), here, "a")
	}
	for _, other := range []string{"golang", " go", "go ", "", "java", "c++", "python"} {
		expectChosen(t, list(choice("a", `"clientLanguage":["`+other+`"]`)), here, "none")
	}
}

func TestClientLanguageIsAListOfStrings(t *testing.T) {
	t.Parallel()
	for _, value := range []string{`"go"`, `null`, `{}`, `7`, `true`} {
		expectVoid(t, choice("a", `"clientLanguage":`+value), "clientLanguage: expected a list of strings")
	}
	expectVoid(t, choice("a", `"clientLanguage":["go",7]`), "clientLanguage[1]: expected a string, found a number")
	expectVoid(t, choice("a", `"clientLanguage":[null]`), "clientLanguage[0]: expected a string")
}

// Each percentage is for as many of 100 clients, and a growing one loses none of them.
func TestPercentageOfClientsThatUseTheChoice(t *testing.T) {
	t.Parallel()
	for p := range 101 {
		for draw := range 100 {
			want := "none"
			if draw < p {
				want = "a"
			}
			expectChosen(t, list(choice("a", fmt.Sprintf(`"percentage":%d`, p))), Client{Draw: draw}, want)
		}
	}
}

func TestPercentageMustMatchThePattern(t *testing.T) {
	t.Parallel()
	for _, p := range []string{
		"101", "110", "200", "1000", "-1", "-0", "-10", "0.5", "50.0", "1e1", "1E2", "5e-1",
		`"50"`, `""`, "null", "true", "[50]", "{}", "99999999999999999999999999",
	} {
		expectVoid(t, choice("a", `"percentage":`+p), "percentage: expected an integer from 0 to 100")
	}
}

func TestClientHostnameIsExactAndCaseSensitive(t *testing.T) {
	t.Parallel()
	expectChosen(t, list(choice("a", `"clientHostname":["x","host-1"]`)), here, "a")
	for _, other := range []string{"Host-1", "HOST-1", "host-1.example.com", "host", "host-10", "*", ""} {
		expectChosen(t, list(choice("a", `"clientHostname":["`+other+`"]`)), here, "none")
	}
	expectVoid(t, choice("a", `"clientHostname":"host-1"`), "clientHostname: expected a list of strings")
	expectVoid(t, choice("a", `"clientHostname":["host-1",{}]`), "clientHostname[1]: expected a string")
	// A client that does not know its name is not the one without a name.
	expectChosen(t, list(choice("a", `"clientHostname":[""]`)), Client{Language: "go"}, "none")
}

func TestHostnameIsTheOneAccordingToTheSystem(t *testing.T) {
	t.Parallel()
	want, err := os.Hostname()
	if err != nil {
		t.Skip(err)
	}
	xdstest.Equal(t, "hostname", want, (Options{}).withDefaults().Hostname)
}

func TestServiceConfigThatIsNoObjectOrMissingOrInvalidVoidsTheChoice(t *testing.T) {
	t.Parallel()
	for _, value := range []string{`"x"`, `[]`, `[{}]`, `null`, `7`, `true`} {
		expectVoid(t, `{"serviceConfig":`+value+`}`, "serviceConfig: expected an object")
	}
	expectVoid(t, `{}`, "serviceConfig: expected an object, found nothing")
	expectVoid(t, `{"percentage":50}`, "serviceConfig: expected an object, found nothing")

	l, err := Parse(list(choice("bad"), choice("good")), func(text string) error {
		if strings.Contains(text, "bad") {
			return errors.New("no such policy")
		}
		return nil
	})
	xdstest.NoError(t, err)
	if len(l.Void) != 1 || !strings.Contains(l.Void[0].Reason.Error(), "serviceConfig: not a valid service config: no such policy") {
		t.Errorf("void: %v, want the first with the reason of the validation", l.Void)
	}
	if c := l.Choose(here); c == nil || c.Index != 1 {
		t.Errorf("chosen: %+v, want the second", c)
	}
}

func TestInvalidChoiceIsIgnoredAndIndicatedAndTheSearchGoesOn(t *testing.T) {
	t.Parallel()
	value := list(`7`, choice("a", `"percentage":200`), `{}`, choice("b", `"clientLanguage":["java"]`), choice("c"), `"after"`)
	expectChosen(t, value, here, "c")
	l, err := Parse(value, nil)
	xdstest.NoError(t, err)
	var void []int
	for _, v := range l.Void {
		void = append(void, v.Index)
	}
	xdstest.Equal(t, "void choices", []int{0, 1, 2, 5}, void)
	xdstest.Equal(t, "the choice taken has index", 4, l.Choose(here).Index)
}

func TestEveryFaultOfAChoiceIsNamed(t *testing.T) {
	t.Parallel()
	expectVoid(t, `{"x":1,"y":2,"clientLanguage":"go","percentage":-1,"clientHostname":[1],"serviceConfig":[]}`,
		`unexpected field "x"`, `unexpected field "y"`, "clientLanguage: ", "percentage: ", "clientHostname[0]: ", "serviceConfig: ")
}

func TestAttributeValueIsAJSONList(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		`{"serviceConfig":{}}`:    "is an object, where a list of choices is expected",
		`"x"`:                     "is a string, where a list",
		`null`:                    "null",
		``:                        "not JSON: line 1, column ",
		`[`:                       "not JSON: line 1, column ",
		`[{"serviceConfig":{}}`:   "not JSON: line 1, column ",
		`[{"serviceConfig":{}},]`: "not JSON: line 1, column ",
		`[] x`:                    "not JSON: line 1, column ",
		`[][]`:                    "not JSON: line 1, column ",
		`[{"percentage":007}]`:    "not JSON: line 1, column ",
		`[{"percentage":+7}]`:     "not JSON: line 1, column ",
		`[{'serviceConfig':{}}]`:  "not JSON: line 1, column ",
		"[{}] // a comment":       "not JSON: line 1, column ",
		"\ufeff[]":                "not JSON: line 1, column ",
		"[\x00]":                  "not JSON: line 1, column ",
	} {
		if _, err := Parse(value, nil); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), attribute) {
			t.Errorf("%q: %v; want an error that says %q", value, err, want)
		}
	}
	for _, value := range []string{" [ ] ", "\t[\r\n]\n"} {
		if _, err := Parse(value, nil); err != nil {
			t.Errorf("%q: %v", value, err)
		}
	}
}

// TestExampleRecord is the record of A2, "Encoding in DNS TXT Records", as the
// resolver sees it.
func TestExampleRecord(t *testing.T) {
	t.Parallel()
	const record = `grpc_config=[{"serviceConfig":{"loadBalancingPolicy":"round_robin","methodConfig":[{"name":[{"service":"MyService","method":"Foo"}],"waitForReady":true}]}}]`
	value, found, err := Find([]string{record})
	if err != nil || !found {
		t.Fatalf("found %v, %v", found, err)
	}
	l, err := Parse(value, nil)
	xdstest.NoError(t, err)
	want := &List{Choices: []*Choice{{
		ServiceConfig: `{"loadBalancingPolicy":"round_robin","methodConfig":[{"name":[{"service":"MyService","method":"Foo"}],"waitForReady":true}]}`,
	}}}
	xdstest.Equal(t, "list", want, l)
}

func TestContentsAreASCII(t *testing.T) {
	t.Parallel()
	expectVoid(t, `{"serviceConfig":{"name":"caf`+"\u00e9"+`"}}`, "ASCII")
	expectVoid(t, `{"serviceConfig":{"name":"`+"\xff"+`"}}`, "ASCII")
	// The others stay what they are.
	expectChosen(t, list(`{"serviceConfig":{"name":"`+"\u00e9"+`"}}`, choice("b")), here, "b")
	// An escape is ASCII.
	expectChosen(t, list(choice(`caf\u00e9`)), here, `caf\u00e9`)
}

func TestDNSCarriesNoMoreThan65535Bytes(t *testing.T) {
	t.Parallel()
	fits := list(choice(strings.Repeat("x", maxSize-len(list(choice(""))))))
	if _, err := Parse(fits, nil); err != nil || len(fits) != maxSize {
		t.Errorf("%d bytes: %v", len(fits), err)
	}
	for _, size := range []int{maxSize + 1, 10 << 20} {
		if _, err := Parse(strings.Repeat("[", size), nil); err == nil || !strings.Contains(err.Error(), "65535") {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}
