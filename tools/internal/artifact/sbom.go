package artifact

import (
	"bytes"
	"debug/buildinfo"
	"fmt"
	"strings"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"

	"github.com/deltabridge/deltabridge/tools/internal/modules"
)

// SBOM returns the SBOM of a program, as CycloneDX in JSON. It lists the modules from the build information in the
// binary, with the licenses from parts. A module that is not in parts is an error.
func (b *Build) SBOM(binary, platform string, parts []modules.Module) ([]byte, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	licenses := map[string][]string{}
	for _, m := range parts {
		licenses[m.Path] = m.Licenses
	}
	components := []cyclonedx.Component{component("std", info.GoVersion, licenses["std"])}
	for _, m := range info.Deps {
		path := m.Path
		if m.Replace != nil {
			m = m.Replace
		}
		if licenses[path] == nil {
			return nil, fmt.Errorf("module %s is in the program, but its license is not known", path)
		}
		components = append(components, component(m.Path, m.Version, licenses[path]))
	}
	bom := cyclonedx.NewBOM()
	// The serial number is the same for each build of the same program.
	name := strings.Join([]string{Source, b.Version, b.Commit, platform}, " ")
	bom.SerialNumber = uuid.NewSHA1(uuid.NameSpaceURL, []byte(name)).URN()
	main := component("github.com/deltabridge/deltabridge", b.Version, []string{License})
	main.Type = cyclonedx.ComponentTypeApplication
	bom.Metadata = &cyclonedx.Metadata{Timestamp: b.Date.Format(time.RFC3339), Component: &main}
	bom.Components = &components
	refs := make([]string, len(components))
	for i, c := range components {
		refs[i] = c.BOMRef
	}
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: main.BOMRef, Dependencies: &refs}}
	var out bytes.Buffer
	err = cyclonedx.NewBOMEncoder(&out, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
	return out.Bytes(), err
}

func component(path, version string, ids []string) cyclonedx.Component {
	url := "pkg:golang/" + path + "@" + version
	all := cyclonedx.Licenses{}
	for _, id := range ids {
		all = append(all, cyclonedx.LicenseChoice{License: &cyclonedx.License{ID: id}})
	}
	return cyclonedx.Component{
		Type: cyclonedx.ComponentTypeLibrary, BOMRef: url, Name: path, Version: version, PackageURL: url, Licenses: &all,
	}
}
