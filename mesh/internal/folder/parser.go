package folder

import (
	"maps"
	"path/filepath"
	"slices"

	"github.com/dynxds/dynxds/mesh/internal/document"
)

// Parser makes contents out of files, wherever these are kept. What it has made of a file counts as long as the text of the file stays the
// same. It is for one goroutine.
type Parser struct {
	// Dir is the Dir of the contents. Errors and sources have the files in it.
	Dir string

	texts   map[string]string
	files   map[string]*file
	content *Content
	err     error
}

// Parse checks files, by name and text, each and against each other, and returns what they have together: the same pointers as before
// where nothing has changed. An error is a *document.Faults; then there is no content. The map must not be changed afterwards.
func (p *Parser) Parse(texts map[string]string) (*Content, error) {
	before, known := p.texts, p.files
	if p.texts = texts; known != nil && maps.Equal(before, texts) {
		return p.content, p.err
	}
	var faults document.Faults
	c := &Content{Dir: p.Dir, Files: len(texts)}
	p.files = make(map[string]*file, len(texts))
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		f := known[name]
		if f == nil || before[name] != texts[name] {
			f = parse(filepath.Join(p.Dir, name), []byte(texts[name]))
		}
		p.files[name] = f
		c.Services = append(c.Services, f.content.Services...)
		c.Policies = append(c.Policies, f.content.Policies...)
		c.Resources = append(c.Resources, f.content.Resources...)
		faults.AddAll(&f.faults)
	}
	checkNames(c, &faults)
	if p.content, p.err = c, faults.Err(); p.err != nil {
		p.content = nil
	}
	return p.content, p.err
}
