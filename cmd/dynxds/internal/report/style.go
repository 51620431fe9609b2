package report

// style writes text in colour, or as it is.
type style bool

// plain leaves text as it is.
const plain style = false

func (s style) bold(text string) string  { return s.with("1", text) }
func (s style) good(text string) string  { return s.with("32", text) }
func (s style) bad(text string) string   { return s.with("31", text) }
func (s style) faint(text string) string { return s.with("2", text) }

func (s style) with(code, text string) string {
	if s == plain || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}
