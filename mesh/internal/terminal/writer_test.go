package terminal

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/dynxds/dynxds/internal/xdstest"
	"github.com/dynxds/dynxds/mesh/internal/styled"
)

func TestInvisibleCharactersAreEscaped(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ text, want string }{
		{"plain\ttext\n", "plain\ttext\n"},
		{"wörds\u00a0and 文字 €", "wörds\u00a0and 文字 €"},
		{"\x1b[31m\x7f\u009b\u202e\u200b\r", `\x1b[31m\u007f\u009b\u202e\u200b\r`},
		{"\U000e0041", `\udb40\udc41`},
		{"a\xffb\xe2\x80", "a\ufffdb\ufffd"},
		{"", ""},
	} {
		var out bytes.Buffer
		if wrote, err := New(&out).Write([]byte(test.text)); wrote != len(test.text) || err != nil {
			t.Fatalf("Write of %q: %d, %v", test.text, wrote, err)
		}
		xdstest.Equal(t, test.text, test.want, out.String())
	}
}

// On a terminal the style of a line decides how it looks, never what it says; a text has no escape sequences of its own.
func TestPrint(t *testing.T) {
	t.Parallel()
	text := styled.Text{{Style: styled.Heading, Text: "client"}, {Text: "NACKED \x1b[31m"}, {Style: styled.Good}}
	text.AddAll(styled.Bad, "dynxds: no\n\twhy\n")
	for name, test := range map[string]struct {
		colours bool
		want    string
	}{
		"colours":    {true, "\x1b[1mclient\x1b[0m\nNACKED \\x1b[31m\n\n\x1b[31mdynxds: no\x1b[0m\n\x1b[31m\twhy\x1b[0m\n"},
		"no colours": {false, "client\nNACKED \\x1b[31m\n\ndynxds: no\n\twhy\n"},
	} {
		var out bytes.Buffer
		xdstest.NoError(t, Print(&Writer{to: &out, colours: test.colours}, text))
		xdstest.Equal(t, name, test.want, out.String())
	}
	var out bytes.Buffer
	xdstest.NoError(t, Print(&out, text))
	xdstest.Equal(t, "another writer", text.String(), out.String())
}

// A text that is drawn again takes the place of the last one, and does not scroll.
func TestRedraw(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	window := size{width: 10, height: 4}
	w := &Writer{to: &out, window: func() size { return window }}
	draw := func(text, want string) {
		t.Helper()
		out.Reset()
		var lines styled.Text
		lines.AddAll(styled.Plain, text)
		xdstest.NoError(t, w.Redraw(lines))
		xdstest.Equal(t, "drawn", want, out.String())
	}
	draw("a\nb\n", "\x1b[Ja\nb\n")
	draw("\x1b[2J\tc\n", "\x1b[2A\x1b[J\\x1b[2J c\n")
	draw("1\n2\n3\n4\n", "\x1b[1A\x1b[J1\n2\n… 2 more …\n")
	_, err := w.Write([]byte("other\n"))
	xdstest.NoError(t, err)
	draw("d", "\x1b[Jd\n")
	// In a window of another size the lines of before may take more or fewer lines.
	window = size{width: 5, height: 2}
	draw("123456\n7\n", "\x1b[J… 2 …\n")
	window.height = 3
	draw("123456\n7\n", "\x1b[J1234…\n7\n")
	draw("8", "\x1b[2A\x1b[J8\n")
	if !w.Redraws() || New(&out).Redraws() {
		t.Error("only a terminal can be drawn again")
	}
}

// A line takes as many columns as the terminal gives its characters.
func TestCut(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"12345": "12345", "123456": "1234…", "文字文": "文字…", "文字": "文字", "a文字": "a文字", "ab文字": "ab文…", "e\u0301e\u0301e\u0301e\u0301e\u0301": "e\u0301e\u0301e\u0301e\u0301e\u0301",
		"\U0001F600\U0001F600\U0001F600": "\U0001F600\U0001F600…", "": "",
	} {
		xdstest.Equal(t, fmt.Sprintf("cut of %q", line), want, cut(line, 5))
	}
}
