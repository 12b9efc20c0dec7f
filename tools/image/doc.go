// Command image packs the programs that were built for linux/amd64 and linux/arm64 into one OCI image layout.
//
//	image -dir DIR -bin DIR -out DIR -version VERSION -commit COMMIT -date DATE
//
// Contract:
//
//   - -bin contains linux_amd64/bridge and linux_arm64/bridge.
//   - In the layout, the image has the name in the chart, so container runtimes import it under this name.
//   - There is no base image, so nothing is pulled, and only Go and this project must be kept up to date. In addition
//     to the program, the image contains what a static program requires: the certificates of public authorities, a
//     user, and writable directories. It has no shell.
//   - The certificates are in the file /etc/ssl/certs/ca-certificates.crt and not in the program, so that users can
//     mount another file over it. They are those of the NSS trust store (golang.org/x/crypto/x509roots), in the version
//     in tools/go.mod. Authorities that are trusted with restrictions are left out, because a PEM file can't express
//     these.
//   - The program runs as user and group 65532.
//   - /usr/share/licenses contains the license texts of all modules in the program.
//   - The index contains an SBOM (CycloneDX) for each image, as an artifact with the image as its subject. The same
//     SBOMs are in the subdirectory sbom of the output.
//   - The build is reproducible: the output depends only on the input, and all times are that of the commit.
package main
