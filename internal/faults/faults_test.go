package faults

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestFaultOnOneLine(t *testing.T) {
	t.Parallel()
	for want, fault := range map[string]Fault{
		"no good":               {Problem: "no good"},
		"a.b: no good":          {Path: "a.b", Problem: "no good"},
		"f.yaml: no good":       {File: "f.yaml", Problem: "no good"},
		"7: no good":            {Line: 7, Problem: "no good"},
		"f:7: a: bad; be good":  {File: "f", Line: 7, Path: "a", Problem: "bad", Suggestion: "be good"},
		"f:7: no good; be good": {File: "f", Line: 7, Problem: "no good", Suggestion: "be good"},
	} {
		if got := fault.String(); got != want {
			t.Errorf("%#v is %q, want %q", fault, got, want)
		}
	}
}

func TestError(t *testing.T) {
	t.Parallel()
	if (*Faults)(nil).Err() != nil || (&Faults{Source: "s"}).Err() != nil {
		t.Error("no faults are an error")
	}
	one := []Fault{{Path: "a", Problem: "bad"}}
	for _, tc := range []struct {
		faults       Faults
		lines, joint string
	}{
		{Faults{List: one}, "a: bad", "a: bad"},
		{Faults{Source: "s", List: one}, "s: a: bad", "a: bad"},
		{Faults{Source: "s", List: one, Omitted: 2}, "s: 3 errors:\n  a: bad\n  and 2 more", "a: bad; and 2 more"},
		{Faults{List: []Fault{{File: "g", Line: 1}, {File: "f", Line: 9}, {File: "f", Line: 8}}}, "f:8: \nf:9: \ng:1: ", "f:8: ; f:9: ; g:1: "},
	} {
		err := tc.faults.Err()
		if err == nil || err.Error() != tc.lines || tc.faults.Join("; ") != tc.joint {
			t.Errorf("%+v is %q and %q, want %q and %q", tc.faults, err, tc.faults.Join("; "), tc.lines, tc.joint)
		}
		if target := (*Faults)(nil); !errors.As(err, &target) || target.Total() != len(target.List)+target.Omitted {
			t.Errorf("%v is a %T", err, err)
		}
	}
}

func TestListIsBounded(t *testing.T) {
	t.Parallel()
	var f Faults
	for i := range MaxListed + 7 {
		if full := f.Full(); full != (i >= MaxListed) {
			t.Errorf("after %d faults, Full is %v", i, full)
		}
		f.Add(Fault{Problem: fmt.Sprint(i)})
	}
	f.Addf(nil, "%v", neverFormatted{t})
	var all Faults
	all.Addf(Field("a"), "is %d", 1)
	all.AddAll(&f)
	for _, tc := range []struct {
		f           *Faults
		last        string
		omitted, is int
	}{{&f, "99", 8, MaxListed + 8}, {&all, "98", 9, MaxListed + 9}} {
		if last := tc.f.List[len(tc.f.List)-1].Problem; len(tc.f.List) != MaxListed || last != tc.last || tc.f.Omitted != tc.omitted || tc.f.Total() != tc.is {
			t.Errorf("%d faults are listed, the last is %q, %d are not, of %d", len(tc.f.List), last, tc.f.Omitted, tc.f.Total())
		}
	}
	var long Faults
	if long.Addf(nil, "%s", strings.Repeat("é", MaxProblem)); long.List[0].Problem != strings.Repeat("é", MaxProblem/2)+"…" {
		t.Errorf("a fault has %d bytes", len(long.List[0].Problem))
	}
	if all.List[0] != (Fault{Path: "a", Problem: "is 1"}) {
		t.Errorf("the first fault is %+v", all.List[0])
	}
}

type neverFormatted struct{ t *testing.T }

func (n neverFormatted) String() string {
	n.t.Error("a fault that is only counted was formatted")
	return ""
}

func TestPath(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		path *Path
		want string
	}{
		{nil, ""},
		{Field("a"), "a"},
		{Item("a", 0).Field("b"), "a[0].b"},
		{Field("a").Item("b", 12), "a.b[12]"},
		{Field("a").Key("k\n").Item("b", 1), `a["k\n"].b[1]`},
		{(*Path)(nil).Key(strings.Repeat("é", 101)), `["` + strings.Repeat("é", 100) + `…"]`},
	} {
		if got := tc.path.String(); got != tc.want {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
}

func TestJoin(t *testing.T) {
	t.Parallel()
	for _, tc := range [][3]string{{"", "b", "b"}, {"a", "", "a"}, {"a", "b", "a.b"}, {"a", "[0].b", "a[0].b"}, {"", "", ""}} {
		if got := Join(tc[0], tc[1]); got != tc[2] {
			t.Errorf("Join(%q, %q) = %q, want %q", tc[0], tc[1], got, tc[2])
		}
	}
}

func TestTextIsCutBetweenCharacters(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                     "",
		"abcd":                 "abcd",
		"abcde":                "abcd…",
		"abcéx":                "abc…",
		"\x80\x80\x80\x80\x80": "…",
	} {
		if got := Shorten(in, 4); got != want {
			t.Errorf("Shorten(%q) is %q, want %q", in, got, want)
		}
	}
	if got, want := Quote(strings.Repeat("é", 110)+"x"), `"`+strings.Repeat("é", MaxQuoted/2)+`…"`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := Quote("a\xff"); got != `"a\xff"` || !utf8.ValidString(got) {
		t.Errorf("got %s", got)
	}
}

func TestPrintable(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ text, keep, want string }{
		{"plain, “even so” é 世", "", "plain, “even so” é 世"},
		{"a\nb\tc", "\n", `a` + "\n" + `b\tc`},
		{"\x1b[2J\x7f\u009b\u202e\u2028\U000e0001", "", `\x1b[2J\u007f\u009b\u202e\u2028\udb40\udc01`},
		{"proto:\u00a0no", "", "proto:\u00a0no"},
		{"\xff", "", "\uFFFD"},
		{"\x00\xff", "", `\x00` + "\uFFFD"},
	} {
		if got := Printable(tc.text, tc.keep); got != tc.want {
			t.Errorf("Printable(%q, %q) = %q, want %q", tc.text, tc.keep, got, tc.want)
		}
	}
}

func TestCount(t *testing.T) {
	t.Parallel()
	for want, got := range map[string]string{
		"0 faults": Count(0, "fault"), "1 policy": Count(1, "policy"), "999 policies": Count(999, "policy"), "1,000 clients": Count(1000, "client"),
		"1,234,567": Number(1_234_567), "123,456": Number(123_456), "-1000": Number(-1000),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
