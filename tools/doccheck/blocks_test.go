package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const page = "Text.\n" +
	"```console\n$ echo one > out\n> echo two >> out\none\n```\n" +
	"```go\npackage none\n```\n" +
	"<!-- doc: file hello.txt -->\n<!-- doc: in sub -->\n```json\n{\"it\": 's'}\n```\n" +
	"<!-- doc: in sub -->\n<!-- doc: also echo unseen >> ../out -->\n```sh\ncat hello.txt >> ../out\n```\n" +
	"<!-- doc: with that -->\n```sh\necho that >> out\n```\n<!-- doc: with this -->\n```sh\necho this >> out\n```\n" +
	"<!-- doc: skip, it never ends -->\n```sh\nexit 1\n```\n"

func TestCommandsAreCarriedOut(t *testing.T) {
	t.Parallel()
	blocks, err := parse("page.md", page, "this")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := run(context.Background(), dir, blocks.script); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "one\ntwo\nunseen\n{\"it\": 's'}\nthis\n"; string(got) != want {
		t.Errorf("the commands wrote %q, want %q", got, want)
	}
	want := []string{"page.md:21: not carried out: it needs that", "page.md:29: not carried out: it never ends"}
	if !slices.Equal(blocks.skipped, want) || blocks.commands != 3 {
		t.Errorf("%d blocks have commands, want 3; skipped are %q, want %q", blocks.commands, blocks.skipped, want)
	}
}

func TestACommandThatFailsIsReported(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ page, want string }{
		"at the end":    {"```sh\necho before; false\n```", "before"},
		"in between":    {"```sh\nfalse\necho after\n```", "exit status 1"},
		"in a pipe":     {"```sh\nfalse | cat\n```", "exit status 1"},
		"unknown name":  {"```sh\necho $NO_SUCH_NAME\n```", "NO_SUCH_NAME"},
		"where it is":   {"\n\n``` sh of a title\nfalse\n```", "page.md:3"},
		"it never ends": {"```sh\nsleep 100\n```", "deadline"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			blocks, err := parse("page.md", test.page, "")
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			err = run(ctx, t.TempDir(), blocks.script)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

func TestFaultyComments(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ page, want string }{
		"unknown":        {"<!-- doc: jump, high -->\n```sh\n```", "line 1: doc: jump is unknown"},
		"no reason":      {"<!-- doc: skip -->\n```sh\n```", "is not complete"},
		"no block":       {"<!-- doc: skip, never -->\nText.", "line 1: there is no code block"},
		"not its own":    {"```console\n$ bin/program\n```", "line 1: it needs bin/"},
		"built too late": {"```sh\nbin/program\n```\n```sh\ngo build -o bin/ ./program\n```", "line 1: it needs bin/"},
		"without an end": {"```sh\ntrue\n", "line 1: the code block does not end"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := parse("page.md", test.page, ""); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}
