package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestLinks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("other.md", "# A title\n\n## Beside gRPC-Go's `own` xds\n\n## Twice\n## Twice\n<a id=\"old\"></a>\n```\n# no heading\n```\n")
	write("data.json", "")
	write("page.md", strings.Join([]string{
		"# Here",
		"[a](other.md), [b](other.md#a-title), [c](#here), [d](data.json), [e](.), [f](https://example.com/none#x)",
		"[g](other.md#beside-grpc-gos-own-xds) [h](other.md#twice-1) [i](other.md#old)",
		"```go of a title", "[code](none.md)", "```",
		"[j](none.md) and [k](other.md#no-heading)",
		"[l](#there)",
	}, "\n"))
	page := filepath.Join(dir, "page.md")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	got := links(page, string(text))
	for i := range got {
		got[i] = strings.ReplaceAll(got[i], dir+"/", "")
	}
	want := []string{
		"page.md:7: the link none.md: there is no none.md",
		"page.md:7: the link other.md#no-heading: other.md has no such section",
		"page.md:8: the link #there: page.md has no such section",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
