package dnsconfig

import (
	"os"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/dynxds/dynxds/internal/xdstest"
)

// TestManual: the zone file of the manual has the effect that the manual describes.
func TestManual(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../docs/tasks/dns.md")
	xdstest.NoError(t, err)
	_, rest, _ := strings.Cut(string(doc), "\n```zone\n")
	zone, _, ok := strings.Cut(rest, "\n```")
	if !ok {
		t.Fatal("the manual has no zone file")
	}
	var records []string
	parser := dns.NewZoneParser(strings.NewReader(zone+"\n"), "", "")
	for rr, ok := parser.Next(); ok; rr, ok = parser.Next() {
		txt, ok := rr.(*dns.TXT)
		if !ok {
			continue
		}
		xdstest.Equal(t, "the name of the record", Prefix+"echo.example.com.", txt.Hdr.Name)
		text := strings.Join(txt.Txt, "")
		records = append(records, strings.ReplaceAll(text, `\"`, `"`))
	}
	xdstest.NoError(t, parser.Err())
	value, found, err := Find(records)
	if !found || err != nil {
		t.Fatalf("found %v, %v", found, err)
	}
	list, err := Parse(value, nil)
	if err != nil || len(list.Void) > 0 {
		t.Fatalf("%v, void %v", err, list)
	}
	for _, test := range []struct {
		client Client
		want   int
	}{
		{Client{Language: "go", Draw: 49}, 0},
		{Client{Language: "go", Draw: 50}, 2},
		{Client{Language: "go", Draw: 50, Hostname: "build-1"}, 1},
		{Client{Language: "java"}, 2},
	} {
		if got := list.Choose(test.client); got == nil || got.Index != test.want {
			t.Errorf("%+v gets %+v, want choice %d", test.client, got, test.want)
		}
	}
}
